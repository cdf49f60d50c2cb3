package planner

import (
	"fmt"
	"net/netip"
	"slices"
)

type Kind string

// The kinds of action (docs/design/bridge.md, Order of writes).
const (
	Acquire        Kind = "acquire"          // allocates slot Slot at the daemon
	Restore        Kind = "restore"          // allocates exactly IPs to slot Slot at the daemon
	Publish        Kind = "publish"          // writes IPs to the pool as entries of slot Slot
	Suspend        Kind = "suspend"          // writes IPs to the pool so that the agent does not allocate them any more
	MarkForRelease Kind = "mark-for-release" // writes marked-for-release: the agent responds whether it releases IPs
	Unmark         Kind = "unmark"           // removes IPs from the handshakes
	Withdraw       Kind = "withdraw"         // removes IPs, which the agent has released, from the pool
	Release        Kind = "release"          // releases IPs of slot Slot at the daemon
	MarkReleased   Kind = "mark-released"    // writes released: the agent removes the handshakes of IPs
)

// Action is one step of a slot. It is safe to repeat.
type Action struct {
	Kind Kind
	// Slot is the number of the slot; 0 for an address of no slot.
	Slot int
	// IPs are the addresses; empty for Acquire.
	IPs []netip.Addr
	// Also is for a Restore the address of the other family that the slot had, if it is known and
	// not held: one request asks the plugin for both.
	Also netip.Addr
}

func (a Action) String() string {
	switch {
	case a.Kind == Acquire:
		return fmt.Sprintf("%s slot %d", a.Kind, a.Slot)
	case a.Also.IsValid():
		return fmt.Sprintf("%s %v with %s of slot %d", a.Kind, a.IPs, a.Also, a.Slot)
	}
	return fmt.Sprintf("%s %v of slot %d", a.Kind, a.IPs, a.Slot)
}

// Reasons of reports, in CamelCase as for a Kubernetes Event.
const (
	ForeignEntry        = "ForeignPoolEntry"    // the bridge did not write this entry of the pool
	AddressNotHeld      = "AddressNotHeld"      // a used address is not held by the daemon and could not be restored
	AddressOutsideRange = "AddressOutsideRange" // a used address is outside the ranges from which the plugin allocates now
)

// Report is an address that needs attention.
type Report struct {
	Reason string
	IP     netip.Addr
}

// Plan has the next actions, in batches that are applied in the order of the fields. Each batch is one
// write, or requests that run concurrently, so that the number of writes does not depend on the number
// of slots. If a request fails, the later actions on its addresses are skipped and the others executed;
// a failed write ends the plan. Then a new plan is made. Each action is safe after those of the batches
// before.
type Plan struct {
	// Unping removes the response to a ping from before a suspension: it is not evidence for that.
	Unping []Action
	// Pool is written to spec.ipam.pool, Marks to status.ipam.release-ips.
	Pool, Marks []Action
	// Restore and Release are requests for particular addresses.
	Restore, Release []Action
	// Released is written to status.ipam.release-ips.
	Released []Action
	// Acquire are requests for any address, which might take one of Restore.
	Acquire []Action
	Reports []Report
}

// Actions returns the actions in order. Without any, CiliumNode and daemon agree.
func (p Plan) Actions() []Action {
	return slices.Concat(p.Unping, p.Pool, p.Marks, p.Restore, p.Release, p.Released, p.Acquire)
}

// Irreversible reports whether the plan withdraws or releases an address.
func (p Plan) Irreversible() bool {
	return len(p.Release) > 0 || slices.ContainsFunc(p.Pool, func(a Action) bool { return a.Kind == Withdraw })
}

func (p *Plan) batch(k Kind) *[]Action {
	switch k {
	case Publish, Suspend, Withdraw:
		return &p.Pool
	case MarkForRelease, Unmark:
		return &p.Marks
	case Restore:
		return &p.Restore
	case Release:
		return &p.Release
	case MarkReleased:
		return &p.Released
	default:
		return &p.Acquire
	}
}

// New returns the next plan. The order of its batches keeps two invariants at every instant
// (docs/design/bridge.md): an address in the pool is held by the daemon, and an address that the agent
// uses stays in the pool.
func New(o Observed, r Remembered, s Settings) Plan {
	b := newBuilder(o, r, s)
	b.recoverUsed()
	b.finish()
	b.recoverPublished()
	b.recoverListed()
	b.claim()
	b.acquire()
	for _, slot := range b.held {
		b.advance(slot, b.demand(slot))
	}
	b.holdBack()
	b.releaseExcess()
	b.ping()
	return b.plan
}

type builder struct {
	Observed
	Remembered
	settings Settings
	plan     Plan
	// held are the slots that the daemon holds, sorted and by number; slotOf are the slots of their
	// addresses.
	held     []Slot
	byNumber map[int]Slot
	slotOf   map[netip.Addr]int
	// used are the held slots that are in use (usedSlots).
	used map[int]bool
	// unallocatable is the number of used slots outside the ranges before the first publication, which
	// needs its slots in addition: the pods cannot be replaced before the agent has started.
	unallocatable int
	// needed are the slots whose release is canceled because they are needed.
	needed map[int]bool
	// withdrawing reports whether published addresses that are not held are being withdrawn.
	withdrawing bool
	// draining reports whether a slot needs the ping, or waits for the response.
	draining bool
}

func newBuilder(o Observed, r Remembered, s Settings) *builder {
	b := &builder{Observed: o, Remembered: r, settings: s, slotOf: map[netip.Addr]int{}, byNumber: map[int]Slot{}, needed: map[int]bool{}}
	for _, slot := range o.Slots {
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
		if slot.Outside && b.slotInUse(slot) && !b.published() {
			b.unallocatable++
		}
	}
	if b.settings.MaxAllocate > 0 {
		b.settings.MaxAllocate += b.unallocatable
	}
	return b
}

func (b *builder) add(k Kind, slot int, ips ...netip.Addr) {
	if batch := b.plan.batch(k); len(ips) > 0 || k == Acquire {
		*batch = append(*batch, Action{Kind: k, Slot: slot, IPs: ips})
	}
}

// unmark removes the handshake of an address, if there is one.
func (b *builder) unmark(n int, ip netip.Addr) {
	if b.Handshakes[ip] != "" {
		b.add(Unmark, n, ip)
	}
}

func (b *builder) report(reason string, ip netip.Addr) {
	b.plan.Reports = append(b.plan.Reports, Report{reason, ip})
}

// demand returns what is to become of a held slot.
func (b *builder) demand(s Slot) Demand {
	switch used := b.slotInUse(s); {
	case s.Outside && used:
		return Stay
	case s.Outside:
		return Drop
	case used || b.needed[s.Number]:
		return Keep
	default:
		return Idle
	}
}

// holdBack delays the first publication until there are enough slots for the start of the agent, and
// every address that an endpoint may use.
func (b *builder) holdBack() {
	if enough := len(b.publishable()) >= b.initial() && !b.PodsPending; !b.published() && (!enough || len(b.plan.Restore) > 0) {
		b.plan.Pool = slices.DeleteFunc(b.plan.Pool, func(a Action) bool { return a.Kind != Withdraw })
	}
}

// releaseExcess begins to release the excess as one set, the slots with the highest numbers, after
// everything else is done. Each step is one write for the whole set.
func (b *builder) releaseExcess() {
	if !b.published() || b.withdrawing || len(b.plan.Actions()) > 0 || slices.ContainsFunc(b.held, func(s Slot) bool { return b.releasing(s) && slices.ContainsFunc(s.Addresses, b.inPool) }) {
		return
	}
	free := b.free()
	for _, slot := range free[len(free)-min(len(free), b.Excess):] {
		if b.phase(slot) == Published {
			b.advance(slot, Drop)
		}
	}
}

// ping asks the agent for a sign of life while a slot waits for it. The agent responds to a mark from its
// memory. Before it has restored its endpoints after a restart, it would release an address that an
// endpoint uses. So an address is marked only after it cannot be allocated any more (suspended), a
// running agent has seen that (ping), and the agent has had time to write its used addresses (drain).
//
// cilium-agent overlooks handshakes that it reads at its start before it can allocate, until the CiliumNode
// changes: by a ping.
func (b *builder) ping() {
	suspends := slices.ContainsFunc(b.plan.Pool, func(a Action) bool { return a.Kind == Suspend })
	switch state := b.Handshakes[Ping]; {
	case suspends && state != "":
		b.plan.Unping = []Action{{Kind: Unmark, IPs: []netip.Addr{Ping}}}
	case suspends:
	case !b.draining && !b.Overlooked:
		b.unmark(0, Ping)
	case state == "":
		b.add(MarkForRelease, 0, Ping)
	}
}
