package planner

import (
	"fmt"
	"slices"
)

// Settings are the numbers of slots, as Cilium's options of these names (CiliumNode spec.ipam):
// PreAllocate are free slots, and 0 in MaxAllocate is no limit.
type Settings struct {
	MinAllocate, PreAllocate, MaxAllocate int
	// MaxAboveWatermark is how many slots are acquired beyond those that are missing, and may be free
	// beyond PreAllocate before they are released.
	MaxAboveWatermark int
	// MaxPods is the number of pods that the node can have, if the plugin's range is the node's own: no
	// other node can use the addresses, so there are slots for all these pods and the agent at any
	// time, in place of PreAllocate. 0 otherwise.
	MaxPods int
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

// acquire adds the missing slots: first releases in progress are canceled, then slots acquired, the lowest
// free number first.
func (b *builder) acquire() {
	retained := len(b.retained())
	if retained >= b.low() {
		return
	}
	missing := b.high() - retained
	for _, slot := range b.held {
		if missing > 0 && !slot.Outside && b.releasing(slot) && !b.withdrawn(slot) {
			b.needed[slot.Number] = true
			missing--
		}
	}
	if b.Exhausted {
		return // the caller's backoff ends this
	}
	reserved, slots := b.reserved()
	if limit := b.settings.MaxAllocate; limit > 0 {
		missing = min(missing, limit-slots)
	}
	if b.Batch > 0 {
		missing = min(missing, b.Batch)
	}
	if lacking := b.initial() - len(b.publishable()); lacking > 0 && !b.published() {
		missing = min(missing, lacking)
	}
	for n := 0; missing > 0; n++ {
		if !reserved[n] {
			b.add(Acquire, n)
			missing--
		}
	}
}

// low is the number of slots below which some are acquired.
func (b *builder) low() int { return max(b.watermark(), b.limit(b.initial()+b.unallocatable)) }

// watermark is the number of slots that the settings demand. In a range of the node's own it is at
// most RangeSize, unless more are needed.
func (b *builder) watermark() int {
	need := max(len(b.used), b.agentSlots()+b.Pods) + b.Headroom
	if b.settings.MaxPods == 0 {
		return b.limit(max(b.settings.MinAllocate, need+b.settings.PreAllocate))
	}
	n := max(b.settings.MinAllocate, b.agentSlots()+b.settings.MaxPods)
	if b.RangeSize > 0 {
		n = min(n, b.RangeSize)
	}
	return b.limit(max(n, need))
}

// agentSlots is the number of slots for the agent itself. The agent takes them at its start, which may
// not have finished, and without ingress it takes one less than agentAddresses: keeping that slot
// costs less than releasing one on each node. Only addresses in the pool or of held slots count: the
// status may have any others.
func (b *builder) agentSlots() int {
	v4, v6 := 0, 0
	for ip, e := range b.Used {
		_, held := b.slotOf[ip]
		switch {
		case e.ofPod() || !held && !b.inPool(ip):
		case ip.Is4():
			v4++
		default:
			v6++
		}
	}
	return max(v4, v6, agentAddresses)
}

// high is the number of slots up to which they are acquired, and above which they are released.
func (b *builder) high() int { return b.limit(b.low() + b.settings.MaxAboveWatermark) }

// initial returns how many slots the first publication needs: the agent regards a pool that is too
// small as exhausted, and terminates. A starting agent drops each endpoint whose address is not in the
// first publication. If neither CiliumNode nor daemon know these addresses any more, the plugin may
// return them to the slots that had them. Their numbers may have gaps, so all slots that are needed
// anyway are acquired first; once the plugin has returned one address, up to maxSearched.
func (b *builder) initial() int {
	_, slots := b.reserved()
	if b.Depleted || b.published() || len(b.Used) > 0 || b.settings.MaxAllocate > 0 && slots >= b.settings.MaxAllocate {
		return b.limit(agentAddresses)
	}
	v4, v6, held, missing := 0, 0, false, false
	for ip := range b.PodIPs {
		n, is := b.slotOf[ip]
		if is && b.byNumber[n].Outside {
			continue // the agent cannot allocate its slot
		}
		held, missing = held || is, missing || !is
		if ip.Is4() {
			v4++
		} else {
			v6++
		}
	}
	n := agentAddresses + max(v4, v6)
	switch {
	case missing && held:
		n = max(n, maxSearched)
	case missing:
		n = max(n, b.watermark())
	}
	return b.limit(n)
}

func (b *builder) limit(n int) int {
	if most := b.settings.MaxAllocate; most > 0 {
		return min(n, most)
	}
	return n
}

type Counts struct {
	// Free are held and neither used nor being released; Missing are to be acquired; Excess are free,
	// above the watermark and may be released.
	Free, Missing, Excess int
	// Retained are held and not being released.
	Retained int
}

func Count(o Observed, r Remembered, s Settings) Counts {
	b := newBuilder(o, r, s)
	c := Counts{Free: len(b.free()), Retained: len(b.retained())}
	if s.ReleaseExcess {
		c.Excess = max(0, min(c.Retained-b.high(), c.Free))
	}
	if c.Retained < b.low() {
		c.Missing = b.high() - c.Retained
	}
	return c
}

func (b *builder) free() []Slot {
	return slices.DeleteFunc(b.retained(), b.slotInUse)
}
