package planner

import (
	"net/netip"
	"slices"
)

// This file counts: what of a view is ours, used, staying or leaving.

// published tells whether anything of ours is in the pool.
func (p *plan) published() bool {
	for _, entry := range p.Pool {
		if _, ours := entry.Slot(); ours {
			return true
		}
	}
	return false
}

// usedSlots are the held slots of which the agent uses an address, be it one that
// the slot has lost.
func (p *plan) usedSlots() map[int]bool {
	held := map[int]bool{}
	for _, slot := range p.held {
		held[slot.Number] = true
	}
	used := map[int]bool{}
	for ip := range p.Used {
		n, ours := p.slotOf[ip]
		if !ours {
			n, ours = p.Pool[ip].Slot()
		}
		if ours && held[n] {
			used[n] = true
		}
	}
	return used
}

// leaving tells whether a slot is on its way back.
func (p *plan) leaving(slot Slot) bool {
	return !p.kept[slot.Number] && slices.ContainsFunc(slot.Addresses, func(ip netip.Addr) bool {
		return p.Pool[ip].Fenced() || p.Release[ip] != ""
	})
}

// left tells whether an address of a slot has been withdrawn: then the slot goes.
func (p *plan) left(slot Slot) bool {
	return slices.ContainsFunc(slot.Addresses, func(ip netip.Addr) bool {
		_, published := p.Pool[ip]
		return !published && p.Release[ip] != ""
	})
}

// staying are the held slots that are not on their way back.
func (p *plan) staying() []Slot { return slices.DeleteFunc(slices.Clone(p.held), p.leaving) }

// having are the addresses of a slot that are published and in a state of the handshake.
func (p *plan) having(slot Slot, state Handshake) []netip.Addr {
	return slices.DeleteFunc(slices.Clone(slot.Addresses), func(ip netip.Addr) bool {
		_, published := p.Pool[ip]
		return !published || p.Release[ip] != state
	})
}

// unfenced are the published addresses of a slot that have no fence.
func (p *plan) unfenced(slot Slot) []netip.Addr {
	return slices.DeleteFunc(slices.Clone(slot.Addresses), func(ip netip.Addr) bool {
		entry, published := p.Pool[ip]
		return !published || entry.Fenced()
	})
}

// taken are the numbers that must not be acquired: known to the sidecar with an
// address, or still named by the pool or by what is used.
func (p *plan) taken() map[int]bool {
	taken := map[int]bool{}
	for _, slot := range p.Slots {
		if slot.Held || len(slot.Addresses) > 0 {
			taken[slot.Number] = true
		}
	}
	for _, entries := range []map[netip.Addr]Entry{p.Pool, p.Used} {
		for _, e := range entries {
			if n, ours := e.Slot(); ours {
				taken[n] = true
			}
		}
	}
	return taken
}
