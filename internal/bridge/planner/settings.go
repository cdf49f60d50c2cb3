package planner

import "fmt"

// Settings are the numbers of slots, as Cilium's options of these names (CiliumNode spec.ipam).
type Settings struct {
	// MinAllocate is the least number of slots.
	MinAllocate int
	// PreAllocate is the number of free slots.
	PreAllocate int
	// MaxAllocate is the largest number of slots; 0 for no limit.
	MaxAllocate int
	// MaxAboveWatermark is how many slots are acquired beyond those that are missing, and may be free
	// beyond PreAllocate before they are released.
	MaxAboveWatermark int
	// ReleaseExcess allows releases.
	ReleaseExcess bool
}

// agentAddresses is the number of addresses that the agent itself takes: router, health and ingress.
// With fewer in the pool it may terminate at its start.
const agentAddresses = 3

// maxSearched is the number of slots up to which the first publication searches for pod addresses.
const maxSearched = 256

// Validate returns an error if --max-allocate is too small for the other settings and the agent. The
// range of each single option is checked by options.Bridge.
func (s Settings) Validate() error {
	least := max(s.MinAllocate, agentAddresses)
	if s.MaxAllocate <= 0 || s.MaxAllocate >= least {
		return nil
	}
	return fmt.Errorf("--max-allocate is %d; expected 0 for no limit, or %d or more: --min-allocate is %d, and the agent takes %d for itself",
		s.MaxAllocate, least, s.MinAllocate, agentAddresses)
}
