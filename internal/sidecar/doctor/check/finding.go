package check

import "fmt"

// State is the severity of a finding.
type State string

const (
	// OK: nothing needs to be done.
	OK State = "ok"
	// Warning: a resource is wasted, or a failure is possible.
	Warning State = "warning"
	// Error: addresses cannot be allocated or may be allocated twice, or it is unknown
	// whether that is so.
	Error State = "error"
)

// Finding is one result of a check.
type Finding struct {
	// Check is the name of the check. Run sets it.
	Check string `json:"check"`
	// Pool is the pool's name; empty if the finding is about the whole sidecar.
	Pool string `json:"pool,omitempty"`
	// Address is the affected address, without a prefix length; empty for none.
	Address string `json:"address,omitempty"`
	State   State  `json:"state"`
	// Message describes the finding, and Remedy its correction; Remedy is empty if OK.
	Message string `json:"message"`
	Remedy  string `json:"remedy,omitempty"`
}

// Pass returns a finding that needs no action.
func Pass(format string, args ...any) Finding {
	return Finding{State: OK, Message: fmt.Sprintf(format, args...)}
}

// Warn returns a warning.
func Warn(remedy, format string, args ...any) Finding {
	return Finding{State: Warning, Remedy: remedy, Message: fmt.Sprintf(format, args...)}
}

// Fail returns an error.
func Fail(remedy, format string, args ...any) Finding {
	return Finding{State: Error, Remedy: remedy, Message: fmt.Sprintf(format, args...)}
}

// OfPool returns the finding with the name of a pool.
func (f Finding) OfPool(name string) Finding {
	f.Pool = name
	return f
}

// Of returns the finding with an address.
func (f Finding) Of(address fmt.Stringer) Finding {
	f.Address = address.String()
	return f
}

// Worst returns the worst state of findings; OK if there are none.
func Worst(all []Finding) State {
	worst := OK
	for _, f := range all {
		if f.State == Error || worst == OK {
			worst = f.State
		}
	}
	return worst
}
