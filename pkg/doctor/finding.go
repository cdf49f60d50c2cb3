// Package doctor compares what the sidecar says with what the plugin's own files
// say, and finds what neither of the two can find alone (docs/command-line.md, doctor).
package doctor

// State is how bad a finding is.
type State string

const (
	// OK: nothing needs to be done.
	OK State = "ok"
	// Warning: something is wasted, and nobody is in danger.
	Warning State = "warning"
	// Error: addresses cannot be handed out or may be given away twice, or it is not
	// known whether that is so.
	Error State = "error"
)

// Check is what was looked at.
type Check string

const (
	// CheckSidecar: the sidecar answers and is ready.
	CheckSidecar Check = "sidecar"
	// CheckStore: the plugin's store is found and can be read.
	CheckStore Check = "store"
	// CheckEmptyFiles: no file of the store bars an address for nobody.
	CheckEmptyFiles Check = "empty-files"
	// CheckLeases: the store and the sidecar's list have the same addresses.
	CheckLeases Check = "leases"
)

// Finding is one thing that was seen, and what to do about it.
type Finding struct {
	Check Check `json:"check"`
	// Pool is the pool's name; empty for the sidecar as a whole.
	Pool string `json:"pool,omitempty"`
	// Address is the one that is meant, without a prefix length; empty for none.
	Address string `json:"address,omitempty"`
	State   State  `json:"state"`
	// Seen and Do are for a person; Do is empty if there is nothing to do.
	Seen string `json:"seen"`
	Do   string `json:"do,omitempty"`
}

// Worst returns the worst state among findings; OK if there are none.
func Worst(all []Finding) State {
	worst := OK
	for _, f := range all {
		if f.State == Error || worst == OK {
			worst = f.State
		}
	}
	return worst
}
