package planner

import (
	"cmp"
	"net/netip"
	"slices"
)

// restore plans to restore an address of a slot, together with the one of the other family: the plugin
// returns any other one, if it is asked for this one alone.
func (b *builder) restore(n int, ip netip.Addr) {
	a := Action{Kind: Restore, Slot: n, IPs: []netip.Addr{ip}}
	for _, entries := range []map[netip.Addr]Entry{b.Pool, b.Used} {
		for _, other := range sortedAddrs(entries) {
			slot, ours := entries[other].Slot()
			_, held := b.slotOf[other]
			if ours && slot == n && !held && other.Is4() != ip.Is4() && !a.Also.IsValid() {
				a.Also = other
			}
		}
	}
	b.plan.Restore = append(b.plan.Restore, a)
}

// recoverUsed restores used addresses that are neither held nor in the pool, of each family as many as
// pods and agent can use, addresses of pods first: the status may have any others. If the pods are
// unknown, the limit is --max-allocate. agentSlots would grow with each restored address.
func (b *builder) recoverUsed() {
	limit := agentAddresses + b.Pods
	if b.PodIPs == nil {
		limit = cmp.Or(b.settings.MaxAllocate, len(b.Used))
	}
	restorable := map[bool]int{true: limit, false: limit}
	var pods, others []netip.Addr
	for _, ip := range sortedAddrs(b.Used) {
		_, held := b.slotOf[ip]
		switch {
		case held || b.inPool(ip):
			restorable[ip.Is4()]--
		case b.PodIPs[ip]:
			pods = append(pods, ip)
		default:
			others = append(others, ip)
		}
	}
	for _, ip := range append(pods, others...) {
		n, ours := b.Used[ip].Slot()
		switch {
		case ours && b.PodsPending:
			// It will soon be known how many are restored.
		case ours && !b.Refused[ip] && restorable[ip.Is4()] > 0:
			restorable[ip.Is4()]--
			b.restore(n, ip)
		default:
			b.report(AddressNotHeld, ip)
		}
	}
}

// finish ends the handshakes of addresses that are neither in the pool nor used.
func (b *builder) finish() {
	for _, ip := range sortedAddrs(b.Handshakes) {
		if ip == Ping || b.inPool(ip) || b.InUse(ip) {
			continue
		}
		n, held := b.slotOf[ip]
		switch b.Handshakes[ip] {
		case ReadyForRelease:
			switch {
			case held && (b.ReleaseFailed[ip] || b.PodsPending):
				continue
			case held && b.Unasked[ip]:
				b.add(Unmark, n, ip)
				continue
			case held:
				b.add(Release, n, ip)
			}
			b.add(MarkReleased, n, ip)
		case MarkedForRelease, DoNotRelease:
			b.add(Unmark, n, ip)
		}
	}
}

// recoverPublished restores published addresses that are not held. One that cannot be restored stays
// while it is used, and is withdrawn otherwise: the suspension keeps the agent from allocating one that
// the plugin may allocate to another client.
func (b *builder) recoverPublished() {
	for _, ip := range sortedAddrs(b.Pool) {
		entry := b.Pool[ip]
		n, ours := entry.Slot()
		if _, held := b.slotOf[ip]; held {
			continue
		}
		used := b.InUse(ip)
		switch {
		case !ours:
			b.report(ForeignEntry, ip)
		case used && b.Refused[ip]:
			b.unmark(n, ip)
			b.report(AddressNotHeld, ip)
		case used || !b.Refused[ip] && b.Handshakes[ip] != ReadyForRelease:
			b.restore(n, ip)
			b.draining = b.draining || entry.Suspended() && !used && b.Handshakes[ip] == ""
		default:
			b.withdrawing = true
			b.advance(Slot{Number: n, Addresses: []netip.Addr{ip}}, Drop)
		}
	}
}

// claim restores the addresses that held slots have in further families.
func (b *builder) claim() {
	for _, slot := range b.held {
		for _, ip := range slot.Unclaimed {
			if !slot.Outside && !slot.Unconfigured && !b.releasing(slot) && !b.Refused[ip] && !b.known(ip) {
				b.add(Restore, slot.Number, ip)
			}
		}
	}
}

// recoverListed restores slots that the daemon lists and does not hold: the agent may use their
// addresses, which a CiliumNode that was created again does not show. One that cannot be restored, and
// is neither in the pool nor used nor held by another slot, is released; not before its pods are gone.
func (b *builder) recoverListed() {
	for _, slot := range b.Slots {
		own := slices.DeleteFunc(slices.Clone(slot.Addresses), func(ip netip.Addr) bool { _, held := b.slotOf[ip]; return held })
		if slot.Held || len(own) == 0 || slices.ContainsFunc(own, b.known) {
			continue
		}
		lost := slices.IndexFunc(own, func(ip netip.Addr) bool { return !b.Refused[ip] })
		if lost >= 0 {
			b.add(Restore, slot.Number, own[lost])
			continue
		}
		ofPods := slices.DeleteFunc(slices.Clone(own), func(ip netip.Addr) bool { return !b.PodIPs[ip] })
		for _, ip := range ofPods {
			b.report(AddressNotHeld, ip)
		}
		if len(ofPods) == 0 {
			b.release(Slot{Number: slot.Number, Addresses: own})
		}
	}
}
