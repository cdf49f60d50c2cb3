package planner

import (
	"net/netip"
	"slices"
)

// Next returns what is to be done for a view, in order. Nothing to do but
// reports means that all views agree. Whoever executes it stops at the first
// action that fails, and asks again with a fresh view.
//
// The order keeps two promises at every instant (docs/bridge.md): an address in
// the pool is held by the sidecar, and an address that the agent uses stays in
// the pool.
func Next(v View, s Settings) []Action {
	p := &plan{View: v, settings: s, slotOf: map[netip.Addr]int{}, kept: map[int]bool{}}
	for _, slot := range v.Slots {
		if !slot.Held {
			continue
		}
		p.held = append(p.held, slot)
		for _, ip := range slot.Addresses {
			p.slotOf[ip] = slot.Number
		}
	}
	slices.SortFunc(p.held, func(a, b Slot) int { return a.Number - b.Number })
	p.used = p.usedSlots()

	p.rescueUsed()
	p.settleGone()
	p.settleUnheld()
	p.dropBroken()
	p.grow()
	p.publish()
	p.giveBack()
	return p.actions
}

// plan is a view with what follows from it.
type plan struct {
	View
	settings Settings
	// held are the slots that the sidecar holds, slotOf those of their addresses.
	held   []Slot
	slotOf map[netip.Addr]int
	// used are the held slots of which the agent uses an address.
	used map[int]bool
	// kept are the slots whose way back this plan ends.
	kept map[int]bool
	// leading tells that a slot is on its way back.
	leading bool
	actions []Action
}

func (p *plan) do(k Kind, slot int, ips ...netip.Addr) {
	if len(ips) > 0 || k == Acquire {
		p.actions = append(p.actions, Action{Kind: k, Slot: slot, IPs: ips})
	}
}

func (p *plan) report(r Reason, ip netip.Addr) {
	p.actions = append(p.actions, Action{Kind: Report, Reason: r, IPs: []netip.Addr{ip}})
}

// rescueUsed puts back what is used and not in the pool: the next restart of
// the agent would drop its endpoint.
func (p *plan) rescueUsed() {
	for _, ip := range sortedAddrs(p.Used) {
		if _, published := p.Pool[ip]; published {
			continue
		}
		n, held := p.slotOf[ip]
		tagged, ours := p.Used[ip].Slot()
		switch {
		case held:
			p.kept[n] = true
			p.do(Publish, n, ip)
			p.clear(n, ip)
		case ours && !p.Refused[ip]:
			p.do(Restore, tagged, ip)
		default:
			p.report(Unheld, ip)
		}
	}
}

// settleGone ends what is left of handshakes whose address is not in the pool.
func (p *plan) settleGone() {
	for _, ip := range sortedAddrs(p.Release) {
		if ip == Probe || p.seen(ip) {
			continue
		}
		n, held := p.slotOf[ip]
		switch p.Release[ip] {
		case Ready:
			if held {
				p.do(Free, n, ip)
			}
			p.do(Finish, n, ip)
		case Marked, DoNotRelease:
			p.do(Clear, n, ip)
		}
	}
}

// settleUnheld deals with what is in the pool and not held: it is got back, or
// stays while it is used, or leaves by the handshake.
func (p *plan) settleUnheld() {
	for _, ip := range sortedAddrs(p.Pool) {
		entry := p.Pool[ip]
		n, ours := entry.Slot()
		if _, held := p.slotOf[ip]; held {
			continue
		}
		_, used := p.Used[ip]
		switch {
		case !ours:
			p.report(Foreign, ip)
		case used && p.Refused[ip]:
			p.clear(n, ip)
			p.report(Unheld, ip)
		case used || !p.Refused[ip] && p.Release[ip] != Ready:
			p.do(Restore, n, ip)
		default:
			p.lead(Slot{Number: n, Addresses: []netip.Addr{ip}})
		}
	}
}

// dropBroken gets back slots that the sidecar knows and does not hold: the agent
// may have their addresses, and a CiliumNode that was made again says nothing of
// it. One that cannot be got back, and is neither in the pool nor in use, goes.
func (p *plan) dropBroken() {
	for _, slot := range p.Slots {
		if slot.Held || len(slot.Addresses) == 0 || slices.ContainsFunc(slot.Addresses, p.seen) {
			continue
		}
		lost := slices.IndexFunc(slot.Addresses, func(ip netip.Addr) bool { return !p.Refused[ip] })
		if lost >= 0 {
			p.do(Restore, slot.Number, slot.Addresses[lost])
			continue
		}
		p.do(Free, slot.Number, slot.Addresses...)
	}
}

// seen tells whether the agent may know an address.
func (p *plan) seen(ip netip.Addr) bool {
	_, published := p.Pool[ip]
	_, used := p.Used[ip]
	return published || used
}

// grow acquires what is missing: first what is on its way back and can be
// kept, then slots, the lowest free number first.
func (p *plan) grow() {
	missing := p.wanted() - len(p.staying())
	for _, slot := range p.held {
		if missing > 0 && p.leaving(slot) && !p.left(slot) {
			p.keep(slot)
			missing--
		}
	}
	if p.Exhausted {
		return // it is tried again when that is forgotten
	}
	taken := p.taken()
	if limit := p.settings.MaxAllocate; limit > 0 {
		missing = min(missing, limit-len(taken))
	}
	for n := 0; missing > 0; n++ {
		if !taken[n] {
			p.do(Acquire, n)
			missing--
		}
	}
}

// wanted is how many slots the node should have.
func (p *plan) wanted() int {
	if !p.published() {
		return p.first()
	}
	n := max(p.settings.MinAllocate, len(p.used)+p.settings.PreAllocate)
	if limit := p.settings.MaxAllocate; limit > 0 {
		n = min(n, limit)
	}
	return n
}

// first is how many slots there must be before any is published: the agent
// takes a pool that is too small for full, and ends.
func (p *plan) first() int {
	n := max(p.settings.MinAllocate, agentsOwn+p.settings.PreAllocate)
	if limit := p.settings.MaxAllocate; limit > 0 {
		n = min(n, limit)
	}
	return n
}

// publish puts what is held into the pool, and nothing before there is enough
// for the agent, unless there is no more to be had.
func (p *plan) publish() {
	enough := len(p.held) >= p.first() || p.Exhausted && len(p.held) >= agentsOwn
	// What an endpoint may have must be there from the first moment.
	restoring := slices.ContainsFunc(p.actions, func(a Action) bool { return a.Kind == Restore })
	if !p.published() && (!enough || restoring) {
		return
	}
	for _, slot := range p.held {
		for _, ip := range slot.Addresses {
			entry, published := p.Pool[ip]
			_, used := p.Used[ip]
			n, ours := entry.Slot()
			switch {
			case published && ours && n == slot.Number:
			case !published && (used || p.Release[ip] != ""):
				// It has been rescued, or must leave the handshake first.
			default:
				p.do(Publish, slot.Number, ip)
			}
		}
	}
}

// giveBack leads one slot at a time out: fence, probe, rest, mark, withdraw, free.
//
// The agent answers a mark from what it has in memory. One that restarts has
// not yet got back the addresses of its endpoints, and would let go of one that
// an endpoint has. So nothing is marked before it cannot be handed out any more
// (fence), a living agent has seen that (probe), and it has had the time to
// write everything that it uses (rest).
func (p *plan) giveBack() {
	for _, slot := range p.held {
		if p.leaving(slot) {
			p.lead(slot)
		}
	}
	if p.leading {
		return
	}
	p.clear(0, Probe)
	busy := slices.ContainsFunc(p.actions, func(a Action) bool { return a.Kind != Report })
	if busy || !p.settings.ReleaseExcess {
		return
	}
	staying := p.staying()
	free := slices.DeleteFunc(slices.Clone(staying), func(s Slot) bool { return p.used[s.Number] })
	if len(free) <= p.settings.PreAllocate+p.settings.MaxAboveWatermark || len(staying) <= max(p.settings.MinAllocate, agentsOwn) {
		return
	}
	last := free[len(free)-1]
	p.do(Fence, last.Number, last.Addresses...)
}

// lead takes a slot that is on its way back one step further, or back. One that
// is not held goes the same way: the fence keeps it from being handed out while
// the plugin may give it to somebody else.
func (p *plan) lead(slot Slot) {
	p.leading = true
	states := map[Handshake]int{}
	rested := true
	for _, ip := range slot.Addresses {
		if _, published := p.Pool[ip]; published {
			states[p.Release[ip]]++
			rested = rested && p.Rested[ip]
		}
	}
	switch {
	case slot.Held && p.used[slot.Number] || states[DoNotRelease]+states[Released] > 0:
		p.keep(slot)
	case states[Marked] > 0:
		// It is the agent's turn.
	case len(p.unfenced(slot)) > 0:
		p.clear(slot.Number, Probe) // an answer of before the fence says nothing
		p.do(Fence, slot.Number, p.unfenced(slot)...)
	case states[""] > 0 && p.Release[Probe] == "":
		p.do(Mark, slot.Number, Probe)
	case states[""] > 0 && p.Release[Probe] == DoNotRelease && rested:
		p.do(Mark, slot.Number, p.having(slot, "")...)
		p.do(Clear, slot.Number, Probe)
	case states[""] > 0:
		// It rests, or the agent is yet to answer.
	case states[Ready] > 0:
		gone := p.having(slot, Ready)
		p.do(Withdraw, slot.Number, gone...)
		if slot.Held {
			p.do(Free, slot.Number, slot.Addresses...)
		}
		p.do(Finish, slot.Number, gone...)
	}
}

// keep ends the way back of a slot that is needed: it is published as any other,
// but for one that is not held, which stays fenced.
func (p *plan) keep(slot Slot) {
	p.kept[slot.Number] = p.kept[slot.Number] || slot.Held
	for _, ip := range slot.Addresses {
		if e, published := p.Pool[ip]; published && e.Fenced() && slot.Held {
			p.do(Publish, slot.Number, ip)
		}
		p.clear(slot.Number, ip)
	}
}

// clear takes an address out of the handshake if it is in one.
func (p *plan) clear(n int, ip netip.Addr) {
	if p.Release[ip] != "" {
		p.do(Clear, n, ip)
	}
}
