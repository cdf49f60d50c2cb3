package planner

import "fmt"

// Validate tells what of the settings cannot work, by the name of its option.
func (s Settings) Validate() error {
	for _, o := range []struct {
		option     string
		got, least int
	}{
		{"min-allocate", s.MinAllocate, 0},
		// With none in reserve the next pod waits for ever: only a used address asks for more.
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
	if least := max(s.MinAllocate, agentsOwn); s.MaxAllocate < least {
		return fmt.Errorf("--max-allocate is %d; expected 0 for no limit, or %d or more: --min-allocate is %d, and the agent takes %d for itself",
			s.MaxAllocate, least, s.MinAllocate, agentsOwn)
	}
	return nil
}
