package planner

import (
	"net/netip"
	"slices"
)

// Plan returns the actions that follow from a view, in order. A plan without actions, or with Reports
// only, means that the views agree. The caller stops at the first action that fails, and plans again
// from a new view.
//
// The order keeps two invariants at every instant (docs/bridge.md): an address in the pool is held by
// the sidecar, and an address that the agent uses stays in the pool.
func Plan(v View, s Settings) []Action {
	b := &builder{View: v, settings: s, slotOf: map[netip.Addr]int{}, canceled: map[int]bool{}}
	for _, slot := range v.Slots {
		if !slot.Held {
			continue
		}
		b.held = append(b.held, slot)
		for _, ip := range slot.Addresses {
			b.slotOf[ip] = slot.Number
		}
	}
	slices.SortFunc(b.held, func(x, y Slot) int { return x.Number - y.Number })
	b.used = b.usedSlots()

	b.republishUsed()
	b.finishHandshakes()
	b.recoverPublished()
	b.recoverSlots()
	b.scaleUp()
	b.publish()
	b.scaleDown()
	return b.actions
}

// builder builds the plan of a view.
type builder struct {
	View
	settings Settings
	// held are the slots that the sidecar holds, by number; slotOf are the slots of their addresses.
	held   []Slot
	slotOf map[netip.Addr]int
	// used are the held slots of which the agent uses an address.
	used map[int]bool
	// canceled are the slots whose release this plan cancels.
	canceled map[int]bool
	// releaseInProgress reports whether a slot is being released.
	releaseInProgress bool
	actions           []Action
}

func (b *builder) add(k Kind, slot int, ips ...netip.Addr) {
	if len(ips) > 0 || k == Acquire {
		b.actions = append(b.actions, Action{Kind: k, Slot: slot, IPs: ips})
	}
}

func (b *builder) report(r Reason, ip netip.Addr) {
	b.actions = append(b.actions, Action{Kind: Report, Reason: r, IPs: []netip.Addr{ip}})
}

// unmark removes the handshake of an address, if there is one.
func (b *builder) unmark(n int, ip netip.Addr) {
	if b.Handshakes[ip] != "" {
		b.add(Unmark, n, ip)
	}
}

// republishUsed publishes used addresses that are not in the pool: the agent would drop their
// endpoints at its next restart.
func (b *builder) republishUsed() {
	for _, ip := range sortedAddrs(b.Used) {
		if _, published := b.Pool[ip]; published {
			continue
		}
		n, held := b.slotOf[ip]
		tagged, ours := b.Used[ip].Slot()
		switch {
		case held:
			b.canceled[n] = true
			b.add(Publish, n, ip)
			b.unmark(n, ip)
		case ours && !b.Refused[ip]:
			b.add(Restore, tagged, ip)
		default:
			b.report(AddressNotHeld, ip)
		}
	}
}

// finishHandshakes ends the handshakes of addresses that are neither in the pool nor used.
func (b *builder) finishHandshakes() {
	for _, ip := range sortedAddrs(b.Handshakes) {
		if ip == Probe || b.known(ip) {
			continue
		}
		n, held := b.slotOf[ip]
		switch b.Handshakes[ip] {
		case Ready:
			if held {
				b.add(Release, n, ip)
			}
			b.add(MarkReleased, n, ip)
		case Marked, DoNotRelease:
			b.add(Unmark, n, ip)
		}
	}
}

// recoverPublished restores published addresses that are not held. One that cannot be restored stays
// while it is used, and is withdrawn otherwise.
func (b *builder) recoverPublished() {
	for _, ip := range sortedAddrs(b.Pool) {
		entry := b.Pool[ip]
		n, ours := entry.Slot()
		if _, held := b.slotOf[ip]; held {
			continue
		}
		_, used := b.Used[ip]
		switch {
		case !ours:
			b.report(ForeignEntry, ip)
		case used && b.Refused[ip]:
			b.unmark(n, ip)
			b.report(AddressNotHeld, ip)
		case used || !b.Refused[ip] && b.Handshakes[ip] != Ready:
			b.add(Restore, n, ip)
		default:
			b.advanceRelease(Slot{Number: n, Addresses: []netip.Addr{ip}})
		}
	}
}

// recoverSlots restores slots that the sidecar lists and does not hold: the agent may use their
// addresses, which a CiliumNode that was created again does not show. One that cannot be restored, and
// is neither in the pool nor used, is released.
func (b *builder) recoverSlots() {
	for _, slot := range b.Slots {
		if slot.Held || len(slot.Addresses) == 0 || slices.ContainsFunc(slot.Addresses, b.known) {
			continue
		}
		lost := slices.IndexFunc(slot.Addresses, func(ip netip.Addr) bool { return !b.Refused[ip] })
		if lost >= 0 {
			b.add(Restore, slot.Number, slot.Addresses[lost])
			continue
		}
		b.add(Release, slot.Number, slot.Addresses...)
	}
}

// publish publishes the held slots. The first publication waits until there are enough for the agent,
// or the plugin has no more.
func (b *builder) publish() {
	enough := len(b.held) >= b.initial() || b.Exhausted && len(b.held) >= agentAddresses
	// The first publication must have every address that an endpoint may use.
	restoring := slices.ContainsFunc(b.actions, func(a Action) bool { return a.Kind == Restore })
	if !b.published() && (!enough || restoring) {
		return
	}
	for _, slot := range b.held {
		for _, ip := range slot.Addresses {
			entry, published := b.Pool[ip]
			_, used := b.Used[ip]
			n, ours := entry.Slot()
			switch {
			case published && ours && n == slot.Number:
			case !published && (used || b.Handshakes[ip] != ""):
				// republishUsed has published it, or its handshake must end first.
			default:
				b.add(Publish, slot.Number, ip)
			}
		}
	}
}
