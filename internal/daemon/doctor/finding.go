package doctor

import (
	"fmt"
	"time"
)

// State is the severity of a finding.
type State string

const (
	OK      State = "ok"      // nothing needs to be done
	Warning State = "warning" // a resource is wasted, or a failure is possible
	// Error: addresses cannot be allocated or may be allocated twice, or it is unknown
	// whether that is so.
	Error State = "error"
)

// Finding is one result of a check.
type Finding struct {
	Check string `json:"check"`
	// Pool is the pool's name; empty if the finding is about the whole daemon.
	Pool string `json:"pool,omitempty"`
	// Address is the affected address, without a prefix length; empty for none.
	Address string `json:"address,omitempty"`
	// Owner is the owner of the affected attachment; empty for none.
	Owner string `json:"owner,omitempty"`
	// Lease is that of a leak: a lease of the daemon that no attachment has; nil for another finding.
	Lease *Lease `json:"lease,omitempty"`
	State State  `json:"state"`
	// Message describes the finding, and Remedy its correction; Remedy is empty if OK.
	Message string `json:"message"`
	Remedy  string `json:"remedy,omitempty"`
}

// Lease is a lease of host-local.
type Lease struct {
	ContainerID string `json:"container-id"`
	Interface   string `json:"interface"`
	// Written is when its file was.
	Written time.Time `json:"written"`
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

// report collects findings.
type report struct {
	findings []Finding
	// check and pool are the names in the next findings.
	check, pool string
	// begun is the number of findings before the present pool or, without one, check.
	begun int
}

// begin begins the findings of a pool; empty for the whole daemon.
func (r *report) begin(pool string) { r.pool, r.begun = pool, len(r.findings) }

// clean is ok unless there is a finding since begin.
func (r *report) clean(format string, args ...any) {
	if len(r.findings) == r.begun {
		r.ok(format, args...)
	}
}

// ok adds a finding that needs no action. The result is valid until the next one, as with warn and
// fail.
func (r *report) ok(format string, args ...any) *Finding { return r.add(OK, "", format, args...) }

func (r *report) warn(remedy, format string, args ...any) *Finding {
	return r.add(Warning, remedy, format, args...)
}

func (r *report) fail(remedy, format string, args ...any) *Finding {
	return r.add(Error, remedy, format, args...)
}

func (r *report) add(state State, remedy, format string, args ...any) *Finding {
	r.findings = append(r.findings, Finding{Check: r.check, Pool: r.pool, State: state, Remedy: remedy, Message: fmt.Sprintf(format, args...)})
	return &r.findings[len(r.findings)-1]
}
