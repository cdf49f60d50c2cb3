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
	// MaxAboveWatermark is how many slots beyond PreAllocate may be free before one is released.
	MaxAboveWatermark int
	// ReleaseExcess allows releases.
	ReleaseExcess bool
}

// agentAddresses is the number of addresses that the agent itself takes: router, health and ingress.
// With fewer in the pool it may terminate at its start.
const agentAddresses = 3

// Validate returns an error that names the option of the first invalid setting.
func (s Settings) Validate() error {
	for _, o := range []struct {
		option     string
		got, least int
	}{
		{"min-allocate", s.MinAllocate, 0},
		// Without a free slot the next pod waits forever: only a used address causes an acquisition.
		{"pre-allocate", s.PreAllocate, 1},
		{"max-allocate", s.MaxAllocate, 0},
		{"max-above-watermark", s.MaxAboveWatermark, 0},
	} {
		if o.got < o.least {
			return fmt.Errorf("--%s is %d; expected %d or more", o.option, o.got, o.least)
		}
	}
	if s.MaxAllocate == 0 {
		return nil
	}
	if least := max(s.MinAllocate, agentAddresses); s.MaxAllocate < least {
		return fmt.Errorf("--max-allocate is %d; expected 0 for no limit, or %d or more: --min-allocate is %d, and the agent takes %d for itself",
			s.MaxAllocate, least, s.MinAllocate, agentAddresses)
	}
	return nil
}
