package main

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/containerid"
	"github.com/delegated-ipam/delegated-ipam/internal/daemon/attachment"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/profile"
)

// config is one plugin, and the bounds within which all is explored.
type config struct {
	name    string
	profile profile.Profile
	// lookup: the plugin's store can be read.
	lookup   bool
	families []attachment.Family
	// addrs is the number of addresses of each family, calls of requests, pods of ADDs of a pod, late of
	// verbs that may act late at one time.
	addrs, calls, faults, pods, late int
	// faults that need more than a failed step, on or off; held: the first owner holds its addresses at the begin.
	crash, reboot, lostJournal, olderStore, olderJournal, clockBack, lostLease, lostAddress, outage, ranges, restore, held bool
	// strictDel: the plugin refuses the DEL of an ID that has nothing.
	strictDel bool
	// returns: a released lease returns with a reboot, because the store's file system had not synced its removal.
	returns bool
	// lowest: the plugin returns the lowest free addresses, so that what is lost is next.
	lowest bool
	// gc: a runtime's GC lists no container whose ADD has not ended.
	gc bool
	// bootID: the boot ID reads differently after a crash. leaves: the client of a DEL leaves, also while another
	// operation is in progress on the container.
	bootID, leaves bool
	// container: the first owner is a container interface; bare: it is also added and deleted without the daemon.
	// rollback: from some moment on it is only that. fixed: both owners are container interfaces of one pod.
	container, bare, rollback, fixed bool
	// ahead: one lease is acquired ahead, and both owners are containers. It is held at the begin, and refill further ones
	// are acquired.
	ahead  bool
	refill int
	// lostSpare: a lease that was acquired ahead is lost while no container has it.
	lostSpare bool
	// lostAway: a lease that no client uses is lost while the daemon is not running.
	lostAway bool
	// again is 1 if a repeated ADD may have another network namespace and other CNI_ARGS; byArgs: the plugin knows
	// leases by these, too.
	again                        int
	byArgs                       bool
	requests                     bool // an ADD of a container may request an address
	byPod                        bool // both containers are one to the plugin, which knows it by the ID of the last ADD
	interfaces                   bool // both owners are interfaces of one container, and one to the plugin
	releaseDelay, verifyInterval int
	exclude                      int // addresses
}

// lease is an allocation in the plugin's store.
type lease struct {
	id string
	ip netip.Addr
}

// lateCall is a verb with an unknown outcome that may still act, until a moment, or, as a process of an
// earlier run, until a call with the same ID awaits it.
type lateCall struct {
	add, process bool
	id           string
	requested    []netip.Addr
	until        int
}

// owner is an owner: its attachment, its record on disk, and its client.
type owner struct {
	key attachment.Key
	st  attachment.Status
	// doubted, queued and reserved are what the engine has beside the state.
	doubted, queued bool
	reserved        []netip.Addr
	disk            *attachment.Record
	before          *attachment.Record // the last one on disk that was held, before it was written again
	run             *run
	// result is that of the last operation, settled that of the last one for which another one may wait.
	result, settled error
	// stale: its record on disk is that of a container that ended with a reboot. deleted: the DEL of the container
	// was received; waits: it waits for the operation in progress.
	stale, deleted, waits bool
	// unlisted: a GC that is in progress has not listed the container, and no ADD has begun or ended since.
	unlisted bool
	// removing: its record is removed, and that is not on disk yet.
	removing bool
	// acquired: the lease ahead of this owner, whose name is used once, was acquired.
	acquired bool
	// using are the addresses that its client uses.
	using []netip.Addr
}

// world is everything that the adversary decides about.
type world struct {
	now, boot, unique   int
	owners              []owner
	leases              []lease
	late                []lateCall
	pod                 []netip.Addr
	outside             []netip.Addr
	calls, faults, pods int
	outage, rolledBack  bool
	returns, byPod      bool // as in config
	// freed are the leases that were deleted in this boot, if they may return.
	freed []lease
	// excused are IDs whose leases a lost journal left: they may stay.
	excused []string
	// wrong is what a response had and should not have had.
	wrong string
}

var base = time.Unix(1_000_000, 0).UTC()

func at(n int) time.Time { return base.Add(time.Duration(n) * time.Second) }

func (w *world) clone() *world {
	c := *w
	c.owners = slices.Clone(w.owners)
	c.leases = slices.Clone(w.leases)
	c.late = slices.Clone(w.late)
	return &c
}

type explorer struct {
	cfg  config
	opts attachment.Options
	pool map[attachment.Family][]netip.Addr
	// labels: moves have labels.
	labels bool
}

func newExplorer(c config) *explorer {
	x := &explorer{cfg: c, pool: map[attachment.Family][]netip.Addr{}}
	for i := range c.addrs {
		x.pool[attachment.IPv4] = append(x.pool[attachment.IPv4], at4(i+1))
		x.pool[attachment.IPv6] = append(x.pool[attachment.IPv6], netip.MustParseAddr(fmt.Sprintf("fd00::%d", i+1)))
	}
	x.opts = attachment.Options{
		Node: "n", EnableIPv4: slices.Contains(c.families, attachment.IPv4), EnableIPv6: slices.Contains(c.families, attachment.IPv6),
		WarmLeases:   len(warmOf(c)),
		ReleaseDelay: time.Duration(c.releaseDelay) * time.Second, VerifyInterval: time.Duration(c.verifyInterval) * time.Second,
	}
	for _, ip := range x.pool[attachment.IPv4][:c.exclude] {
		x.opts.Exclude = append(x.opts.Exclude, netip.PrefixFrom(ip, 32))
	}
	return x
}

func at4(n int) netip.Addr { return netip.AddrFrom4([4]byte{10, 0, 0, byte(n)}) }

// options returns the options of a run in the present boot.
func (x *explorer) options(w *world) *attachment.Options {
	o := x.opts
	o.BootID = fmt.Sprint("boot", w.boot)
	return &o
}

func (x *explorer) initial() *world {
	w := &world{now: 100, calls: x.cfg.calls, faults: x.cfg.faults, pods: x.cfg.pods, returns: x.cfg.returns, byPod: x.cfg.byPod}
	names := []string{"a", "b"}
	if x.cfg.container {
		names[0] = containerOwner
	}
	if x.cfg.fixed || x.cfg.ahead || x.cfg.byPod {
		names[1] = nextOwner
	}
	if x.cfg.interfaces {
		names[1] = otherInterface
	}
	names = append(names, warmOf(x.cfg)...)
	for _, n := range names {
		w.owners = append(w.owners, owner{key: attachment.Key{Pool: "p", Owner: n}})
	}
	first, t := 0, task{action: attachment.Allocate, families: x.cfg.families}
	if x.cfg.ahead {
		first, t = 2, task{background: true, action: attachment.Acquire}
		w.owners[first].acquired = true
	}
	if x.cfg.held || x.cfg.ahead {
		x.begin(w, first, t)
		for w.owners[first].run != nil {
			var next *world
			x.outcomes(w, first, func(_ moveKind, change func(*world), _ string, _ ...any) {
				if next == nil {
					next = w.clone()
					change(next)
				}
			})
			w = next
		}
	}
	return w
}

// kept returns the other owner whose addresses are kept for the pod of a container; -1 for none.
func (w *world) kept(i int) int {
	return slices.IndexFunc(w.owners, func(o owner) bool {
		return o.key != w.owners[i].key && o.st.Rec != nil && o.st.Rec.State == attachment.Cooldown && attachment.OfContainer(o.key.Owner)
	})
}

func (w *world) find(k attachment.Key) int {
	return slices.IndexFunc(w.owners, func(o owner) bool { return o.key == k })
}

// has returns the addresses of an attachment that no other one may get.
func (o *owner) has() []netip.Addr {
	if o.st.Rec != nil && o.st.Rec.State == attachment.Releasing {
		return nil
	}
	return slices.Concat(o.st.Rec.Reserved(), o.reserved)
}

// idInUse returns the container ID of the last ADD; that of generation 0 before the first one.
func (o *owner) idInUse() string {
	if o.st.Rec == nil {
		return o.st.ID
	}
	return o.st.Rec.IDInUse()
}

// conflict returns another attachment with one of the addresses, the oldest; -1 for none.
func (w *world) conflict(i int, ips []netip.Addr, releasing bool) (found int, taken netip.Addr) {
	found = -1
	for j := range w.owners {
		has := w.owners[j].has()
		if releasing {
			has = w.owners[j].st.Rec.Reserved()
		}
		for _, ip := range has {
			if j != i && slices.Contains(ips, ip) && (found < 0 || w.older(j, found)) {
				found, taken = j, ip
			}
		}
	}
	return found, taken
}

func (w *world) older(j, i int) bool {
	return w.owners[j].st.Rec.OlderThan(w.owners[i].st.Rec)
}

func (w *world) other(j int) attachment.Other {
	o := &w.owners[j]
	return attachment.Other{Key: o.key, ID: o.idInUse(), Lost: o.st.Lost, Record: o.st.Rec}
}

// held returns the addresses that the store has for an ID.
func (w *world) held(id string) []netip.Addr {
	var ips []netip.Addr
	for _, l := range w.leases {
		if l.id == id {
			ips = append(ips, l.ip)
		}
	}
	return ips
}

func (w *world) free(ip netip.Addr) bool {
	return !slices.ContainsFunc(w.leases, func(l lease) bool { return l.ip == ip })
}

func (w *world) allocate(id string, ips []netip.Addr) {
	w.leases = slices.Clone(w.leases)
	for i, l := range w.leases {
		if w.byPod && id != "pod" && l.id != "pod" {
			w.leases[i].id = id
		}
	}
	for _, ip := range ips {
		w.leases = append(w.leases, lease{id, ip})
	}
	slices.SortFunc(w.leases, func(a, b lease) int { return cmp.Or(strings.Compare(a.id, b.id), a.ip.Compare(b.ip)) })
}

func (w *world) delete(id string) {
	if w.returns {
		for _, l := range w.leases {
			if l.id == id && !slices.Contains(w.freed, l) {
				w.freed = append(slices.Clip(w.freed), l)
			}
		}
	}
	w.leases = slices.DeleteFunc(slices.Clone(w.leases), func(l lease) bool { return l.id == id })
}

// choices returns the results that an ADD may have: one address of each family, a requested or any free
// one. The plugin allocates no address outside its ranges.
func (x *explorer) choices(w *world, requested []netip.Addr) [][]netip.Addr {
	sets := [][]netip.Addr{nil}
	for _, f := range x.cfg.families {
		var next [][]netip.Addr
		asked := slices.ContainsFunc(requested, func(ip netip.Addr) bool { return attachment.FamilyOf(ip) == f })
		for _, ip := range x.pool[f] {
			if !w.free(ip) || slices.Contains(w.outside, ip) || asked && !slices.Contains(requested, ip) {
				continue
			}
			for _, s := range sets {
				next = append(next, append(slices.Clone(s), ip))
			}
		}
		sets = next
	}
	return sets
}

func result(ips []netip.Addr, inStore bool) call.Result {
	r := call.Result{InStore: inStore && len(ips) > 0}
	for _, ip := range ips {
		r.Addresses = append(r.Addresses, call.Address{Prefix: netip.PrefixFrom(ip, ip.BitLen())})
	}
	return r
}

// restart begins a run with what is on disk. The processes of calls in progress live on, or not.
func (x *explorer) restart(w *world) {
	w.late = slices.Clone(w.late)
	for i := range w.owners {
		o := &w.owners[i]
		// A DEL without a response is repeated, and one after a failed write has one.
		repeated := o.waits || o.run != nil && o.run.task.action == attachment.Release || o.st.Dirty
		*o = owner{key: o.key, disk: o.disk, before: o.before, using: o.using, stale: o.stale, acquired: o.acquired, deleted: o.deleted && !repeated}
		if o.disk != nil {
			alive := attachment.OfContainer(o.key.Owner) && len(o.using) > 0
			o.st = attachment.Load(*o.disk, x.options(w), at(w.now), alive)
			o.queued = true
		}
	}
}

// begin begins an operation on an attachment.
func (x *explorer) begin(w *world, i int, t task) {
	o := &w.owners[i]
	if t.background {
		o.queued = false
	}
	o.unlisted = o.unlisted && t.action != attachment.Allocate
	t.outside = w.outside
	if j := w.kept(i); t.action == attachment.Allocate && !t.requests && o.st.Rec == nil && j >= 0 && w.owners[j].run == nil {
		t.kept = w.owners[j].st.Rec.Addrs()
	}
	for j := range w.owners { // only an undisturbed ADD must get what its pod had
		if r := w.owners[j].run; r != nil && len(r.task.kept) > 0 && t.action != attachment.Cleanup {
			disturbed := *r
			disturbed.task.kept = nil
			w.owners[j].run = &disturbed
		}
	}
	o.st.VerifyDue, o.doubted = o.st.VerifyDue || o.doubted, false
	o.run = &run{start: o.st, task: t, began: w.now}
	if x.cfg.profile.VerifyBy != profile.VerifyNothing { // otherwise the protocol ignores it
		o.run.task.freed = t.freed && o.st.Lost
	}
	x.advance(w, i)
}

// ended continues after an operation: its client uses what the response has.
func (x *explorer) ended(w *world, i int, t task, err error) {
	o := &w.owners[i]
	o.unlisted = o.unlisted && t.action != attachment.Allocate
	if err != nil && t.action == attachment.Allocate && x.cfg.lowest && slices.ContainsFunc(w.owners, w.lacks) && w.faults == x.cfg.faults-1 {
		w.wrong = o.key.Owner + " gets nothing because of a loss"
	}
	if err != nil || t.background {
		return
	}
	// It found what the ID of generation 0 has.
	if id := idOf(o.key.Owner); slices.Contains(w.excused, id) && !x.cfg.profile.SingleUseIDs() {
		w.excused = slices.DeleteFunc(slices.Clone(w.excused), func(e string) bool { return e == id })
	}
	switch t.action {
	case attachment.Allocate:
		var got []netip.Addr
		for _, f := range t.families {
			if a, ok := o.st.Rec.Address(f); ok && o.st.Rec.Claimed(f) {
				got = append(got, a.Addr())
			}
		}
		if len(t.kept) > 0 && !slices.Equal(got, t.kept) && w.faults == x.cfg.faults && w.pods == x.cfg.pods {
			w.wrong = fmt.Sprintf("%s gets %v, and its pod had %v", o.key.Owner, got, t.kept)
		}
		repeated := attachment.OfContainer(o.key.Owner) && len(o.using) > 0 && slices.Equal(o.using, got)
		if repeated && o.disk.Container().NetNS != t.netns() {
			w.wrong = o.key.Owner + " has the network namespace of an earlier ADD"
		}
		if t.requests && !slices.Contains(got, at4(2)) {
			w.wrong = fmt.Sprintf("%s gets %v instead of the requested address", o.key.Owner, got)
		}
		if o.deleted {
			got = nil // it has ended meanwhile
		}
		other := func(ip netip.Addr) bool { return slices.Contains(t.families, attachment.FamilyOf(ip)) }
		o.using = append(slices.DeleteFunc(slices.Clone(o.using), other), got...)
		if i := slices.IndexFunc(got, func(ip netip.Addr) bool { return slices.Contains(t.outside, ip) }); i >= 0 {
			w.wrong = fmt.Sprintf("%s gets %s, which was outside the ranges before", o.key.Owner, got[i])
		}
	case attachment.Restore:
		if !slices.Contains(o.using, t.ip) {
			o.using = append(slices.Clip(o.using), t.ip)
		}
	}
	slices.SortFunc(o.using, netip.Addr.Compare)
}

// toRelease reports whether the background may repeat the ADD of a container, to release it: no client uses it.
func (x *explorer) toRelease(o owner) bool { return x.cfg.strictDel && len(o.using) == 0 }

// lacks reports whether the plugin does not hold for an owner what its client uses.
func (w *world) lacks(o owner) bool {
	return slices.ContainsFunc(o.using, func(ip netip.Addr) bool { return !slices.Contains(w.held(o.idInUse()), ip) })
}

// violation returns the property that a world violates.
func (x *explorer) violation(w *world) string {
	if w.wrong != "" {
		return w.wrong
	}
	for i, o := range w.owners {
		for _, ip := range o.using {
			if slices.Contains(w.pod, ip) {
				return fmt.Sprintf("%s and the pod use %s", o.key.Owner, ip)
			}
			if slices.ContainsFunc(x.opts.Exclude, func(p netip.Prefix) bool { return p.Contains(ip) }) {
				return fmt.Sprintf("%s uses %s, which is excluded", o.key.Owner, ip)
			}
			for _, p := range w.owners[i+1:] {
				if slices.Contains(p.using, ip) {
					return fmt.Sprintf("%s and %s use %s", o.key.Owner, p.key.Owner, ip)
				}
			}
		}
	}
	for _, o := range w.owners {
		if o.run != nil && o.run.waits.verb == add && o.run.task.background && attachment.OfContainer(o.key.Owner) && (x.cfg.bare || w.rolledBack || !x.toRelease(o) && !o.run.task.keep && !o.run.waits.inv.KeepsLost && !had(o.st.Rec, o.run.waits.inv)) {
			return fmt.Sprintf("%s is added without a request", o.key.Owner)
		}
		if o.run != nil && !covered(o.disk, o.run.waits) {
			return fmt.Sprintf("%s is not covered by the record on disk", short(o.run.waits.inv.ContainerID))
		}
	}
	for i, o := range w.owners {
		twice := func(p owner) bool {
			return !x.cfg.interfaces && o.disk != nil && p.disk != nil && o.disk.IDInUse() == p.disk.IDInUse()
		}
		if slices.ContainsFunc(w.owners[i+1:], twice) {
			return fmt.Sprintf("two records of %s", short(o.disk.IDInUse()))
		}
	}
	for _, o := range w.owners {
		if why := x.tooFar(w, o.st.Rec); o.run == nil && why != "" {
			return fmt.Sprintf("%s of %s is further ahead than its delay", why, o.key.Owner)
		}
	}
	if x.idle(w) {
		return x.unfinished(w)
	}
	return ""
}

// had reports whether an ADD requests what a container has, and nothing else.
func had(r *attachment.Record, inv call.Invocation) bool {
	lacks := func(ip netip.Addr) bool { return r == nil || !r.Holds(ip) }
	return len(inv.Requested) > 0 && !slices.ContainsFunc(requested(inv), lacks)
}

// tooFar returns what of a record is due later than its delay.
func (x *explorer) tooFar(w *world, r *attachment.Record) string {
	if r == nil {
		return ""
	}
	seconds := time.Duration(x.cfg.profile.AddOutlivesSeconds) * time.Second
	for _, inv := range r.Invocations {
		if inv.AddActsUntil.After(at(w.now).Add(seconds)) {
			return "the end of an ADD"
		}
	}
	switch {
	case r.LateDel.Until.After(at(w.now).Add(seconds)):
		return "the end of a DEL"
	case r.ReleaseAt.After(at(w.now + x.cfg.releaseDelay)):
		return "the release"
	}
	return ""
}

// unfinished returns what is not done although nothing is in progress, and nothing will be.
func (x *explorer) unfinished(w *world) string {
	for _, l := range w.leases {
		if l.id != "pod" && !slices.Contains(w.excused, l.id) && !slices.ContainsFunc(w.owners, func(o owner) bool { return x.leased(o.st.Rec, l.id) }) {
			return fmt.Sprintf("the lease of %s for %s leaks", l.ip, short(l.id))
		}
	}
	for _, o := range w.owners {
		if o.stale {
			return fmt.Sprintf("the record of %s stays after a reboot", o.key.Owner)
		}
		again := func(ip netip.Addr) bool { return w.free(ip) && !slices.Contains(w.outside, ip) }
		if i := slices.IndexFunc(o.using, again); i >= 0 && x.cfg.ranges && o.st.WaitsForOwner {
			return fmt.Sprintf("%s uses %s, which it has lost, and it is not acquired again", o.key.Owner, o.using[i])
		}
		if o.deleted && o.st.Rec != nil {
			return fmt.Sprintf("the DEL of %s was received, and its record stays %s", o.key.Owner, o.st.Rec.State)
		}
		if r := o.st.Rec; r != nil && (r.State == attachment.Releasing || r.State == attachment.Cooldown || r.State == attachment.Tombstone || r.State == attachment.Adding && (!r.InUse() || attachment.OfContainer(o.key.Owner))) {
			return fmt.Sprintf("the record of %s stays %s", o.key.Owner, r.State)
		}
	}
	return ""
}

// covered reports whether the disk would let a start undo a step that changes the plugin's store: the rule
// of the write-ahead log. A DEL is covered by a record that will be released or acquired anew, by a held
// one whose loss the DEL is to confirm, and, under the ID of an earlier ADD, by any.
func covered(d *attachment.Record, s step) bool {
	if s.verb != add && s.verb != del {
		return true
	}
	listed := recorded(d, s.inv.ContainerID)
	switch {
	case d == nil:
		return false
	case d.State == attachment.Adding:
		return listed || s.verb == del
	case s.verb == add:
		return listed && (s.inv.KeepsLost || s.inv.VerifyBy() == profile.VerifyAdd || s.inv.Profile.Key() == profile.KeyedByPod)
	case d.State == attachment.Releasing:
		return true
	}
	return s.inv.ContainerID != d.IDInUse() || d.Confirming
}

func recorded(r *attachment.Record, id string) bool {
	return r != nil && slices.ContainsFunc(r.Invocations, func(inv call.Invocation) bool { return inv.ContainerID == id })
}

// leaseID is by what the plugin knows a lease.
func (x *explorer) leaseID(inv call.Invocation) string {
	if x.cfg.byArgs && strings.HasSuffix(inv.Args, argsAgain) {
		return inv.ContainerID + argsAgain
	}
	return inv.ContainerID
}

// leased reports whether a record leads to a lease.
func (x *explorer) leased(r *attachment.Record, id string) bool {
	return r != nil && slices.ContainsFunc(r.Invocations, func(inv call.Invocation) bool { return x.leaseID(inv) == id })
}

// due returns when background work of an owner is due; -1 for never.
func (x *explorer) due(w *world, o *owner) int {
	if o.queued {
		return w.now
	}
	t, ok := o.st.Due(at(w.now))
	switch {
	case !ok || o.st.Rec == nil:
		return -1
	case t.IsZero():
		return w.now
	}
	return max(w.now, int(t.Sub(base)/time.Second))
}

// idle reports whether nothing is in progress, in flight or due.
func (x *explorer) idle(w *world) bool {
	return len(w.late) == 0 && !w.outage && !slices.ContainsFunc(w.owners, func(o owner) bool { return o.run != nil || o.waits || o.removing || x.due(w, &o) >= 0 })
}

// shortID is an ID in a trace.
type shortID string

func (id shortID) String() string { return short(string(id)) }

// short returns an ID as a trace shows it.
func short(id string) string {
	for _, o := range append([]string{"a", "b"}, warmOwners...) {
		if rest, ok := strings.CutPrefix(id, idOf(o)); ok {
			return o + rest
		}
	}
	return id
}

// containerOwner is a container interface; its container ID is the runtime's.
var containerOwner = attachment.ContainerOwner("c", "eth0")

// nextOwner is another container interface of its pod.
var nextOwner = attachment.ContainerOwner("d", "eth0")

// otherInterface is another interface of the container.
var otherInterface = attachment.ContainerOwner("c", "net1")

// warmOf returns the owners of a configuration that are acquired ahead.
func warmOf(c config) []string {
	if !c.ahead {
		return nil
	}
	return warmOwners[:1+c.refill]
}

// warmOwners are leases that are acquired ahead.
var warmOwners = []string{attachment.WarmOwnerPrefix + "1", attachment.WarmOwnerPrefix + "2"}

var idsOf = map[string]string{
	"a": containerid.For("a", "n", "net"), "b": containerid.For("b", "n", "net"), containerOwner: "c", nextOwner: "d", otherInterface: "c",
	warmOwners[0]: containerid.For(warmOwners[0], "n", "net"), warmOwners[1]: containerid.For(warmOwners[1], "n", "net"),
}

// idOf returns the container ID of generation 0.
func idOf(owner string) string { return idsOf[owner] }
