package planner

import (
	"net/netip"
	"slices"
)

// scaleUp adds the missing slots: first it cancels releases in progress, then it acquires slots, the
// lowest free number first.
func (b *builder) scaleUp() {
	missing := b.desired() - len(b.retained())
	for _, slot := range b.held {
		if missing > 0 && b.releasing(slot) && !b.withdrawn(slot) {
			b.cancelRelease(slot)
			missing--
		}
	}
	if b.Exhausted {
		return // the caller's backoff ends this
	}
	reserved := b.reserved()
	if limit := b.settings.MaxAllocate; limit > 0 {
		missing = min(missing, limit-len(reserved))
	}
	for n := 0; missing > 0; n++ {
		if !reserved[n] {
			b.add(Acquire, n)
			missing--
		}
	}
}

// desired returns how many slots the node should have.
func (b *builder) desired() int {
	if !b.published() {
		return b.initial()
	}
	return b.limit(max(b.settings.MinAllocate, len(b.used)+b.settings.PreAllocate))
}

// initial returns how many slots the first publication needs: the agent takes a pool that is too small
// for exhausted, and terminates.
func (b *builder) initial() int {
	return b.limit(max(b.settings.MinAllocate, agentAddresses+b.settings.PreAllocate))
}

func (b *builder) limit(n int) int {
	if most := b.settings.MaxAllocate; most > 0 {
		return min(n, most)
	}
	return n
}

// scaleDown releases the excess, one slot at a time: cordon, probe, drain, mark, withdraw, release.
//
// The agent answers a mark from its memory. After a restart it has not restored its endpoints yet, and
// would release an address that an endpoint uses. So an address is marked only after it cannot be
// allocated any more (cordon), a running agent has seen that (probe), and the agent has had the time
// to write which addresses it uses (drain).
func (b *builder) scaleDown() {
	for _, slot := range b.held {
		if b.releasing(slot) {
			b.advanceRelease(slot)
		}
	}
	if b.releaseInProgress {
		return
	}
	b.unmark(0, Probe)
	busy := slices.ContainsFunc(b.actions, func(a Action) bool { return a.Kind != Report })
	if busy || !b.settings.ReleaseExcess {
		return
	}
	retained := b.retained()
	free := slices.DeleteFunc(slices.Clone(retained), func(s Slot) bool { return b.used[s.Number] })
	if len(free) <= b.settings.PreAllocate+b.settings.MaxAboveWatermark || len(retained) <= max(b.settings.MinAllocate, agentAddresses) {
		return
	}
	last := free[len(free)-1]
	b.add(Cordon, last.Number, last.Addresses...)
}

// advanceRelease adds the next step of the release of a slot, or cancels it. A slot that is not held is
// withdrawn by the same steps: the cordon keeps the agent from allocating an address that the plugin
// may allocate to another client.
func (b *builder) advanceRelease(slot Slot) {
	b.releaseInProgress = true
	states := map[Handshake]int{}
	drained := true
	for _, ip := range slot.Addresses {
		if _, published := b.Pool[ip]; published {
			states[b.Handshakes[ip]]++
			drained = drained && b.Drained[ip]
		}
	}
	switch {
	case slot.Held && b.used[slot.Number] || states[DoNotRelease]+states[Released] > 0:
		b.cancelRelease(slot)
	case states[Marked] > 0:
		// The agent has not answered yet.
	case len(b.uncordoned(slot)) > 0:
		b.unmark(slot.Number, Probe) // an answer from before the cordon is not evidence
		b.add(Cordon, slot.Number, b.uncordoned(slot)...)
	case states[""] > 0 && b.Handshakes[Probe] == "":
		b.add(MarkForRelease, slot.Number, Probe)
	case states[""] > 0 && b.Handshakes[Probe] == DoNotRelease && drained:
		b.add(MarkForRelease, slot.Number, b.inState(slot, "")...)
		b.add(Unmark, slot.Number, Probe)
	case states[""] > 0:
		// The agent has not answered the probe yet, or the slot drains.
	case states[Ready] > 0:
		ready := b.inState(slot, Ready)
		b.add(Withdraw, slot.Number, ready...)
		if slot.Held {
			b.add(Release, slot.Number, slot.Addresses...)
		}
		b.add(MarkReleased, slot.Number, ready...)
	}
}

// cancelRelease publishes a slot again and removes its handshakes. The entries of a slot that is not
// held stay cordoned.
func (b *builder) cancelRelease(slot Slot) {
	b.canceled[slot.Number] = b.canceled[slot.Number] || slot.Held
	for _, ip := range slot.Addresses {
		if e, published := b.Pool[ip]; published && e.Cordoned() && slot.Held {
			b.add(Publish, slot.Number, ip)
		}
		b.unmark(slot.Number, ip)
	}
}

// inState returns the published addresses of a slot whose handshake is in a state.
func (b *builder) inState(slot Slot, state Handshake) []netip.Addr {
	return b.publishedOf(slot, func(ip netip.Addr) bool { return b.Handshakes[ip] == state })
}

// uncordoned returns the published addresses of a slot that the agent can allocate.
func (b *builder) uncordoned(slot Slot) []netip.Addr {
	return b.publishedOf(slot, func(ip netip.Addr) bool { return !b.Pool[ip].Cordoned() })
}

func (b *builder) publishedOf(slot Slot, matches func(netip.Addr) bool) []netip.Addr {
	return slices.DeleteFunc(slices.Clone(slot.Addresses), func(ip netip.Addr) bool {
		_, published := b.Pool[ip]
		return !published || !matches(ip)
	})
}
