package planner

import (
	"net/netip"
	"slices"
)

// scaleDown releases the excess as one set: suspend, ping, drain, mark, withdraw, release. Each step
// is one write for the whole set. Addresses that no slot holds are withdrawn by the same steps: the
// suspension keeps the agent from allocating one that the plugin may allocate to another client.
//
// The agent responds to a mark from its memory. Before it has restored its endpoints after a restart,
// it would release an address that an endpoint uses. So an address is marked only after it cannot be
// allocated any more (suspended), a running agent has seen that (ping), and the agent has had time to
// write its used addresses (drain).
func (b *builder) scaleDown() {
	set := slices.Clone(b.unheld)
	for _, slot := range b.held {
		if b.releasing(slot) && slices.ContainsFunc(slot.Addresses, b.inPool) {
			set = append(set, slot)
		}
	}
	if len(set) == 0 {
		set = b.excess()
	}
	for _, slot := range set {
		b.advanceRelease(slot)
	}
	switch {
	case b.plans(Suspend) || !b.draining:
		b.unmark(0, Ping) // a response from before the suspension is not evidence
	case b.Handshakes[Ping] == "":
		b.add(MarkForRelease, 0, Ping)
	}
}

// excess returns the slots to release, those with the highest numbers; none while other actions are
// pending.
func (b *builder) excess() []Slot {
	if slices.ContainsFunc(b.actions, func(a Action) bool { return a.Kind != Report }) || !b.published() {
		return nil
	}
	free := b.free()
	return free[len(free)-min(len(free), b.Excess):]
}

// advanceRelease adds the next step of the release of a slot, or cancels it.
func (b *builder) advanceRelease(slot Slot) {
	states := map[Handshake]int{}
	drained := b.Handshakes[Ping] == DoNotRelease
	for _, ip := range slot.Addresses {
		if b.inPool(ip) {
			states[b.Handshakes[ip]]++
			drained = drained && b.Drained[ip]
		}
	}
	switch {
	case slot.Held && b.used[slot.Number] || states[DoNotRelease]+states[Released] > 0:
		b.cancelRelease(slot)
	case states[Marked] > 0:
		// The agent has not responded yet.
	case len(b.unsuspended(slot)) > 0:
		b.add(Suspend, slot.Number, b.unsuspended(slot)...)
	case states[""] > 0 && drained:
		b.add(MarkForRelease, slot.Number, b.inState(slot, "")...)
	case states[""] > 0:
		b.draining = true // until the agent has responded to the ping, and the slot is drained
	case states[Ready] > 0:
		b.withdraw(slot)
	}
}

// withdraw removes a slot that the agent has released from the pool, and releases it.
func (b *builder) withdraw(slot Slot) {
	ready := b.inState(slot, Ready)
	b.add(Withdraw, slot.Number, ready...)
	if slot.Held {
		b.add(Release, slot.Number, slot.Addresses...)
	}
	b.add(MarkReleased, slot.Number, ready...)
}

// cancelRelease publishes a slot again and removes its handshakes. The entries of a slot that is not
// held, or outside the ranges, stay suspended.
func (b *builder) cancelRelease(slot Slot) {
	kept := slot.Held && !slot.Outside
	b.canceled[slot.Number] = b.canceled[slot.Number] || kept
	for _, ip := range slot.Addresses {
		if e, published := b.Pool[ip]; published && e.Suspended() && kept {
			b.add(Publish, slot.Number, ip)
		}
		b.unmark(slot.Number, ip)
	}
}

// inState returns the published addresses of a slot whose handshake is in a state.
func (b *builder) inState(slot Slot, state Handshake) []netip.Addr {
	return b.publishedOf(slot, func(ip netip.Addr) bool { return b.Handshakes[ip] == state })
}

// unsuspended returns the published addresses of a slot that the agent can allocate.
func (b *builder) unsuspended(slot Slot) []netip.Addr {
	return b.publishedOf(slot, func(ip netip.Addr) bool { return !b.Pool[ip].Suspended() })
}

func (b *builder) publishedOf(slot Slot, matches func(netip.Addr) bool) []netip.Addr {
	return slices.DeleteFunc(slices.Clone(slot.Addresses), func(ip netip.Addr) bool { return !b.inPool(ip) || !matches(ip) })
}
