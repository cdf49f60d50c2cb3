package planner

import (
	"net/netip"
	"slices"
)

// Phase is how far the publication or the release of a slot has come.
type Phase string

const (
	// Held: the daemon holds it, and an address is not in the pool.
	Held Phase = "held"
	// Published: in the pool, and the agent can allocate it.
	Published Phase = "published"
	// Suspended: the agent does not allocate it any more.
	Suspended Phase = "suspended"
	// Resumed: its release has begun, but the agent can allocate an address of it.
	Resumed Phase = "resumed"
	// Drained: suspended, and unused for long enough since the agent has responded to the ping.
	Drained Phase = "drained"
	// Marked: the agent was asked to give it up.
	Marked Phase = "marked"
	// Refused: the agent keeps it, or it is not known whether it has given it up.
	Refused Phase = "refused"
	// Ready: the agent has given it up.
	Ready Phase = "ready"
	// Withdrawn: its handshake has not ended, and it is not in the pool any more.
	Withdrawn Phase = "withdrawn"
)

// Demand is what is to become of a slot.
type Demand string

const (
	// Idle: neither used nor needed nor in excess.
	Idle Demand = "idle"
	// Keep: used, or one of the free ones that are needed.
	Keep Demand = "keep"
	// Drop: in excess, outside the ranges or not held.
	Drop Demand = "drop"
	// Stay: outside the ranges, but used.
	Stay Demand = "stay"
)

// step is a method that adds the actions of one step of a slot. Its name is the one in the table.
type step string

var steps = map[step]func(*builder, Slot){
	"wait": func(*builder, Slot) {}, "publish": (*builder).publish, "cancel": (*builder).cancel, "suspend": (*builder).suspend,
	"ping": (*builder).await, "mark": (*builder).mark, "withdraw": (*builder).withdraw, "release": (*builder).release, "confine": (*builder).confine,
}

// table: phase and demand of a slot give its next step (docs/design/bridge.md, Order of writes). A release that
// has begun continues unless the slot is kept.
var table = map[Phase]map[Demand]step{
	Held:      {Keep: "publish", Idle: "publish", Drop: "release", Stay: "confine"},
	Published: {Keep: "wait", Idle: "wait", Drop: "suspend", Stay: "confine"},
	Resumed:   {Keep: "cancel", Idle: "suspend", Drop: "suspend", Stay: "confine"},
	Suspended: {Keep: "cancel", Idle: "ping", Drop: "ping", Stay: "confine"},
	Drained:   {Keep: "cancel", Idle: "mark", Drop: "mark", Stay: "confine"},
	Marked:    {Keep: "cancel", Idle: "wait", Drop: "wait", Stay: "confine"},
	Refused:   {Keep: "cancel", Idle: "cancel", Drop: "cancel", Stay: "confine"},
	Ready:     {Keep: "cancel", Idle: "withdraw", Drop: "withdraw", Stay: "confine"},
	Withdrawn: {Keep: "wait", Idle: "wait", Drop: "wait", Stay: "confine"}, // finish ends each address
}

// order is the order of the phases of a slot's addresses: that of the slot is the first one.
var order = []Phase{Held, Refused, Marked, Published, Suspended, Drained, Ready, Withdrawn}

// phase returns the phase of a slot. One outside the ranges is not published any more.
func (b *builder) phase(s Slot) Phase {
	phases := map[Phase]bool{}
	for _, ip := range s.Addresses {
		phases[b.addressPhase(s, ip)] = true
	}
	if s.Outside && len(phases) > 1 {
		delete(phases, Held)
	}
	first := slices.IndexFunc(order, func(p Phase) bool { return phases[p] })
	switch {
	case first < 0:
		return Held // without an address there is nothing to do
	case order[first] == Published && b.begun(s):
		return Resumed
	}
	return order[first]
}

func (b *builder) addressPhase(s Slot, ip netip.Addr) Phase {
	entry, published := b.Pool[ip]
	n, ours := entry.Slot()
	handshake := b.Handshakes[ip]
	switch {
	case !published && !b.InUse(ip) && handshake != "":
		return Withdrawn
	case !published, s.Held && !s.Outside && (!ours || n != s.Number):
		return Held
	case handshake == DoNotRelease || handshake == Released || b.Unasked[ip]:
		return Refused
	case handshake == MarkedForRelease:
		return Marked
	case !entry.Suspended():
		return Published
	case handshake == ReadyForRelease:
		return Ready
	case b.Drained[ip] && b.Handshakes[Ping] == DoNotRelease:
		return Drained
	default:
		return Suspended
	}
}

// begun reports whether the release of a slot has begun and was not canceled: a used address that is not
// in the pool cancels it.
func (b *builder) begun(s Slot) bool {
	return slices.ContainsFunc(s.Addresses, func(ip netip.Addr) bool { return b.Pool[ip].Suspended() || b.Handshakes[ip] != "" }) &&
		!slices.ContainsFunc(s.Addresses, func(ip netip.Addr) bool { return b.InUse(ip) && !b.inPool(ip) })
}

// advance adds the next step of a slot.
func (b *builder) advance(s Slot, d Demand) { steps[table[b.phase(s)][d]](b, s) }

// publish publishes the addresses that are in no handshake. A used one ends its handshake: the agent
// would drop its endpoint at its next restart.
func (b *builder) publish(s Slot) {
	for _, ip := range s.Addresses {
		if b.addressPhase(s, ip) != Held {
			continue
		}
		if b.InUse(ip) && !b.inPool(ip) {
			b.add(Publish, s.Number, ip)
			b.unmark(s.Number, ip)
		} else if !s.Unconfigured {
			b.add(Publish, s.Number, ip)
		}
	}
}

// cancel publishes a slot again and removes its handshakes. The entries of a slot that is not
// held, or outside the ranges, stay suspended.
func (b *builder) cancel(s Slot) {
	for _, ip := range s.Addresses {
		if b.Pool[ip].Suspended() && s.Held && !s.Outside {
			b.add(Publish, s.Number, ip)
		}
		b.unmark(s.Number, ip)
	}
}

// suspend keeps the agent from allocating a slot.
func (b *builder) suspend(s Slot) {
	b.addWhere(Suspend, s, func(ip netip.Addr) bool { return !b.Pool[ip].Suspended() })
}

// await waits until the agent has responded to the ping, and the slot is drained.
func (b *builder) await(Slot) { b.draining = true }

// mark asks the agent to give up a slot.
func (b *builder) mark(s Slot) {
	b.addWhere(MarkForRelease, s, func(ip netip.Addr) bool { return b.Handshakes[ip] == "" })
}

// withdraw removes a slot that the agent has given up from the pool, and releases it.
func (b *builder) withdraw(s Slot) {
	if b.PodsPending {
		return // a pod may have it
	}
	given := func(ip netip.Addr) bool { return b.Handshakes[ip] == ReadyForRelease }
	b.addWhere(Withdraw, s, given)
	if s.Held {
		b.add(Release, s.Number, s.Addresses...)
	}
	b.addWhere(MarkReleased, s, given)
}

// release releases a slot outside the ranges that the agent does not know, unless a pod may have it.
func (b *builder) release(s Slot) {
	if !b.PodsPending && !slices.ContainsFunc(s.Addresses, func(ip netip.Addr) bool { return b.ReleaseFailed[ip] }) {
		b.add(Release, s.Number, s.Addresses...)
	}
}

// confine keeps the agent from allocating a slot outside the ranges that it or a pod uses, and reports
// it. It stays in the pool as long as it is used.
func (b *builder) confine(s Slot) {
	for _, ip := range s.Addresses {
		used := b.InUse(ip)
		if (used || b.inPool(ip)) && !b.Pool[ip].Suspended() {
			b.add(Suspend, s.Number, ip)
		}
		b.unmark(s.Number, ip)
		if used {
			b.report(AddressOutsideRange, ip)
		}
	}
}

// addWhere adds an action for the published addresses of a slot that match.
func (b *builder) addWhere(k Kind, s Slot, matches func(netip.Addr) bool) {
	b.add(k, s.Number, slices.DeleteFunc(slices.Clone(s.Addresses), func(ip netip.Addr) bool { return !b.inPool(ip) || !matches(ip) })...)
}
