package planner

import (
	"net/netip"
	"slices"
)

func (b *builder) published() bool {
	for _, entry := range b.Pool {
		if _, ours := entry.Slot(); ours {
			return true
		}
	}
	return false
}

func (b *builder) inPool(ip netip.Addr) bool {
	_, published := b.Pool[ip]
	return published
}

// known reports whether the agent may know an address.
func (b *builder) known(ip netip.Addr) bool {
	_, used := b.Used[ip]
	return used || b.inPool(ip)
}

// slotInUse is InUse for a slot, also one that has lost the address.
func (b *builder) slotInUse(s Slot) bool {
	return b.used[s.Number] || slices.ContainsFunc(s.Addresses, b.InUse)
}

// usedSlots returns the held slots of which the agent uses an address, also one that the slot has lost.
func (b *builder) usedSlots() map[int]bool {
	used := map[int]bool{}
	for ip := range b.Used {
		n, ours := b.slotOf[ip]
		if !ours {
			n, ours = b.Pool[ip].Slot()
		}
		if _, held := b.byNumber[n]; ours && held {
			used[n] = true
		}
	}
	return used
}

// releasing reports whether the release of a slot is in progress. One outside the ranges is released as
// soon as it is unused.
func (b *builder) releasing(slot Slot) bool {
	if slot.Outside {
		return !b.slotInUse(slot)
	}
	return !b.needed[slot.Number] && b.begun(slot)
}

// withdrawn reports whether an address of a slot has been withdrawn: the release cannot be canceled any
// more.
func (b *builder) withdrawn(slot Slot) bool {
	return slices.ContainsFunc(slot.Addresses, func(ip netip.Addr) bool {
		return !b.inPool(ip) && b.Handshakes[ip] != ""
	})
}

func (b *builder) publishable() []Slot {
	return slices.DeleteFunc(slices.Clone(b.held), func(s Slot) bool { return s.Outside || s.Unconfigured })
}

func (b *builder) retained() []Slot {
	return slices.DeleteFunc(slices.Clone(b.held), b.releasing)
}

// reserved returns the numbers that must not be acquired: of slots that the daemon lists with an
// address, of the pool, of planned restores and of used addresses. slots is the number of them without
// the last ones, of which the status may have any.
func (b *builder) reserved() (reserved map[int]bool, slots int) {
	reserved = map[int]bool{}
	for _, slot := range b.Slots {
		if slot.Held || len(slot.Addresses) > 0 {
			reserved[slot.Number] = true
		}
	}
	for _, a := range b.plan.Restore {
		reserved[a.Slot] = true
	}
	for _, entries := range []map[netip.Addr]Entry{b.Pool, b.Used} {
		slots = len(reserved)
		for _, e := range entries {
			if n, ours := e.Slot(); ours {
				reserved[n] = true
			}
		}
	}
	return reserved, slots
}
