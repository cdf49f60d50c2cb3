package planner

import (
	"cmp"
	"net/netip"
	"slices"
)

// Plan returns the actions that follow from a view, in order. A plan without actions, or with Reports
// only, means that the views agree. If an action at the sidecar fails, the caller skips the later
// actions on its addresses and executes the others; if a write fails, it stops. Then it plans again
// from a new view.
//
// The order keeps two invariants at every instant (docs/design/bridge.md): an address in the pool is held by
// the sidecar, and an address that the agent uses stays in the pool.
func Plan(v View, s Settings) []Action {
	b := newBuilder(v, s)
	b.republishUsed()
	b.finishHandshakes()
	b.recoverPublished()
	b.recoverSlots()
	b.drainOutside()
	b.scaleUp()
	b.publish()
	b.scaleDown()
	b.sort()
	return b.actions
}

func newBuilder(v View, s Settings) *builder {
	b := &builder{View: v, settings: s, slotOf: map[netip.Addr]int{}, byNumber: map[int]Slot{}, canceled: map[int]bool{}}
	for _, slot := range v.Slots {
		if !slot.Held {
			continue
		}
		b.held = append(b.held, slot)
		b.byNumber[slot.Number] = slot
		for _, ip := range slot.Addresses {
			b.slotOf[ip] = slot.Number
		}
	}
	slices.SortFunc(b.held, func(x, y Slot) int { return x.Number - y.Number })
	b.used = b.usedSlots()
	for _, slot := range b.held {
		if slot.Outside && b.used[slot.Number] && !b.published() {
			b.unallocatable++
		}
	}
	if b.settings.MaxAllocate > 0 {
		b.settings.MaxAllocate += b.unallocatable
	}
	return b
}

type builder struct {
	View
	settings Settings
	// held are the slots that the sidecar holds, sorted and by number; slotOf are the slots of their
	// addresses.
	held     []Slot
	byNumber map[int]Slot
	slotOf   map[netip.Addr]int
	// used are the held slots that are in use (usedSlots).
	used map[int]bool
	// unallocatable is the number of used slots outside the ranges before the first publication, which
	// needs its slots in addition: the pods cannot be replaced before the agent has started.
	unallocatable int
	// canceled are the slots whose release this plan cancels.
	canceled map[int]bool
	// unheld are the published addresses to withdraw because no slot holds them.
	unheld []Slot
	// draining reports whether a slot needs the ping, or waits for the response.
	draining bool
	actions  []Action
}

func (b *builder) add(k Kind, slot int, ips ...netip.Addr) {
	if len(ips) > 0 || k == Acquire {
		b.actions = append(b.actions, Action{Kind: k, Slot: slot, IPs: ips})
	}
}

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
	b.actions = append(b.actions, a)
}

// sort brings the actions into the order of their execution: consecutive actions on one target are one
// write, so that the number of writes does not depend on the number of slots. Held slots are published
// before any action that may take long.
func (b *builder) sort() {
	order := map[Kind]int{
		Publish: 1, Suspend: 1, Withdraw: 1, Unmark: 2, MarkForRelease: 2, Restore: 3, Release: 3, MarkReleased: 4, Acquire: 5, Report: 6,
	}
	suspends := b.plans(Suspend)
	phase := func(a Action) int {
		// A response to the ping from before a suspension is not evidence.
		if suspends && a.Kind == Unmark && a.IPs[0] == Ping {
			return 0
		}
		return order[a.Kind]
	}
	slices.SortStableFunc(b.actions, func(x, y Action) int { return phase(x) - phase(y) })
}

func (b *builder) report(reason string, ip netip.Addr) {
	b.actions = append(b.actions, Action{Kind: Report, Reason: reason, IPs: []netip.Addr{ip}})
}

func (b *builder) plans(k Kind) bool {
	return slices.ContainsFunc(b.actions, func(a Action) bool { return a.Kind == k })
}

// unmark removes the handshake of an address, if there is one.
func (b *builder) unmark(n int, ip netip.Addr) {
	if b.Handshakes[ip] != "" {
		b.add(Unmark, n, ip)
	}
}

// republishUsed publishes used addresses that are not in the pool: the agent would drop their
// endpoints at its next restart. It restores those that are not held, of each family as many as pods
// and agent can use, addresses of pods first: the status may have any others. If the pods are unknown, the
// limit is --max-allocate. agentSlots would grow with each restored address.
func (b *builder) republishUsed() {
	limit := agentAddresses + b.Pods
	if b.PodIPs == nil {
		limit = cmp.Or(b.settings.MaxAllocate, len(b.Used))
	}
	restorable := map[bool]int{true: limit, false: limit}
	var pods, others []netip.Addr
	for _, ip := range sortedAddrs(b.Used) {
		if _, held := b.slotOf[ip]; held || b.inPool(ip) {
			restorable[ip.Is4()]--
		}
		if b.PodIPs[ip] {
			pods = append(pods, ip)
		} else {
			others = append(others, ip)
		}
	}
	for _, ip := range append(pods, others...) {
		if b.inPool(ip) {
			continue
		}
		n, held := b.slotOf[ip]
		tagged, ours := b.Used[ip].Slot()
		switch {
		case held && b.byNumber[n].Outside:
			// drainOutside publishes it suspended.
		case held:
			b.canceled[n] = true
			b.add(Publish, n, ip)
			b.unmark(n, ip)
		case ours && b.PodsPending:
			// It will soon be known how many are restored.
		case ours && !b.Refused[ip] && restorable[ip.Is4()] > 0:
			restorable[ip.Is4()]--
			b.restore(tagged, ip)
		default:
			b.report(AddressNotHeld, ip)
		}
	}
}

// finishHandshakes ends the handshakes of addresses that are neither in the pool nor used.
func (b *builder) finishHandshakes() {
	for _, ip := range sortedAddrs(b.Handshakes) {
		if ip == Ping || b.known(ip) {
			continue
		}
		n, held := b.slotOf[ip]
		switch b.Handshakes[ip] {
		case Ready:
			if held && b.ReleaseFailed[ip] {
				continue
			}
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
			b.restore(n, ip)
			b.draining = b.draining || entry.Suspended() && !used && b.Handshakes[ip] == ""
		default:
			b.unheld = append(b.unheld, Slot{Number: n, Addresses: []netip.Addr{ip}})
		}
	}
}

// recoverSlots restores slots that the sidecar lists and does not hold: the agent may use their
// addresses, which a CiliumNode that was created again does not show. One that cannot be restored, and
// is neither in the pool nor used nor held by another slot, is released; not before its pods are gone.
func (b *builder) recoverSlots() {
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
		if !b.PodsPending && len(ofPods) == 0 && !slices.ContainsFunc(own, func(ip netip.Addr) bool { return b.ReleaseFailed[ip] }) {
			b.add(Release, slot.Number, own...)
		}
	}
}

// drainOutside keeps the agent from allocating slots outside the ranges, and reports those that it or a
// pod uses. They stay in the pool as long as they are used. Slots that neither knows are released.
func (b *builder) drainOutside() {
	for _, slot := range b.held {
		switch {
		case !slot.Outside:
		case b.used[slot.Number]:
			for _, ip := range slot.Addresses {
				_, used := b.Used[ip]
				used = used || b.PodIPs[ip]
				if (used || b.inPool(ip)) && !b.Pool[ip].Suspended() {
					b.add(Suspend, slot.Number, ip)
				}
				b.unmark(slot.Number, ip)
				if used {
					b.report(AddressOutsideRange, ip)
				}
			}
		case b.PodsPending:
			// It will soon be known whether a pod has an address of it.
		case !slices.ContainsFunc(slot.Addresses, func(ip netip.Addr) bool { return b.known(ip) || b.Handshakes[ip] != "" || b.ReleaseFailed[ip] }):
			b.add(Release, slot.Number, slot.Addresses...)
		}
	}
}

// publish publishes the held slots. The first publication waits until there are enough for the start
// of the agent.
func (b *builder) publish() {
	slots := b.publishable()
	enough := len(slots) >= b.initial() && !b.PodsPending
	// The first publication must have every address that an endpoint may use.
	if !b.published() && (!enough || b.plans(Restore)) {
		b.actions = slices.DeleteFunc(b.actions, func(a Action) bool { return a.Kind == Publish || a.Kind == Suspend })
		return
	}
	for _, slot := range slots {
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
