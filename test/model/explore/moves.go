package main

import (
	"errors"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/daemon/attachment"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/profile"
)

var (
	errFault = errors.New("fault")
	errLeft  = errors.New("the client has left")
)

func refused(verb string, code uint, msg string) error {
	return &call.Error{Verb: verb, Plugin: "p", Outcome: call.Refused, Code: code, Msg: msg}
}

func unknown(verb string) error {
	return &call.Error{Verb: verb, Plugin: "p", Outcome: call.Unknown, Err: errFault}
}

// never is the end of a DEL that is queued: it acts at any time.
const never = math.MaxInt

// lostMessage is how CHECK reports a loss.
const lostMessage = "not held"

// move is a successor of a world.
type move struct {
	label string
	w     *world
	kind  moveKind
}

// moveKind is why a move is made.
type moveKind byte

const (
	goesOn moveKind = iota // it follows without requests and faults
	fault
	chosen // by a client or the pod
)

// adder adds a move: a change of a copy.
type adder func(k moveKind, change func(*world), format string, args ...any)

// moves returns every move from a world.
func (x *explorer) moves(w *world) []move {
	var all []move
	to := func(k moveKind, change func(*world), format string, args ...any) {
		if k == fault && w.faults == 0 {
			return
		}
		c := w.clone()
		if k == fault {
			c.faults--
		}
		change(c)
		m := move{w: c, kind: k}
		if x.labels {
			m.label = fmt.Sprintf(format, args...)
		}
		all = append(all, m)
	}
	for i := range w.owners {
		switch {
		case w.owners[i].run == nil && x.cfg.interfaces && w.owners[1-i].run != nil && !w.owners[1-i].run.task.background:
			// assumed: a runtime calls one verb of a container at a time
		case w.owners[i].run == nil:
			x.begins(w, i, to)
		default:
			x.outcomes(w, i, to)
			x.receives(w, i, to)
		}
	}
	for i, o := range w.owners {
		if x.cfg.gc && w.calls > 0 && attachment.OfContainer(o.key.Owner) && len(o.using) == 0 && o.st.Rec != nil {
			to(chosen, func(c *world) { c.calls--; c.owners[i].unlisted = true }, "%s: a GC begins that does not list it", o.key.Owner)
		}
	}
	x.lateMoves(w, to)
	if w.outage && !x.confirms(w) {
		to(goesOn, func(c *world) { c.outage = false }, "the outage ends")
	}
	if t := x.next(w); t > w.now && t <= w.began()+maxLasting {
		to(goesOn, func(c *world) {
			c.now = t
			c.late = slices.DeleteFunc(c.late, func(l lateCall) bool { return !l.process && l.until <= t })
		}, "time %d", t)
	}
	if x.cfg.rollback && !w.rolledBack && !slices.ContainsFunc(w.owners, func(o owner) bool { return o.run != nil }) {
		to(chosen, func(c *world) {
			c.rolledBack = true
			for i := range c.owners { // assumed: a container whose lease is lost ends before
				if o := &c.owners[i]; attachment.OfContainer(o.key.Owner) && len(c.held(idOf(o.key.Owner))) == 0 {
					o.using = nil
				}
			}
		}, "the plugin is configured itself")
	}
	if w.pods > 0 {
		for _, set := range x.choices(w, nil) {
			to(chosen, func(c *world) {
				c.pods--
				c.pod = slices.Concat(c.pod, set)
				c.allocate("pod", set)
			}, "the pod gets %v", set)
		}
	}
	if w.faults > 0 {
		x.faults(w, to)
	}
	return all
}

// confirms reports whether a DEL may be in progress that is to confirm a loss. Assumed: an outage in which
// CHECK reports a loss wrongly does not end before that DEL does.
func (x *explorer) confirms(w *world) bool {
	return slices.ContainsFunc(w.owners, func(o owner) bool { return o.run != nil }) || slices.ContainsFunc(w.late, func(l lateCall) bool { return l.process })
}

// maxLasting is how long an operation lasts at most: longer than any late verb.
const maxLasting = 5

// began returns when the operation in progress that began first has begun; far ahead without one.
func (w *world) began() int {
	first := 1 << 30
	for _, o := range w.owners {
		if o.run != nil {
			first = min(first, o.run.began)
		}
	}
	return first
}

// next returns the next moment at which something is due, or ends.
func (x *explorer) next(w *world) int {
	best := -1
	consider := func(t int) {
		if t > w.now && (best < 0 || t < best) {
			best = t
		}
	}
	for i := range w.owners {
		o := &w.owners[i]
		if o.run == nil {
			consider(x.due(w, o))
		} else if o.st.Rec != nil {
			for _, inv := range o.st.Rec.Invocations {
				consider(int(inv.AddActsUntil.Sub(base) / time.Second))
			}
		}
	}
	for _, l := range w.late {
		if !l.process && l.until != never {
			consider(l.until)
		}
	}
	return best
}

// removed is a removal that is on disk.
func (o *owner) removed() { o.disk, o.stale, o.removing = nil, false, false }

// lateMoves are what verbs with an unknown outcome, and removals that are not on disk yet, do.
func (x *explorer) lateMoves(w *world, to adder) {
	for i, o := range w.owners {
		if o.removing {
			to(goesOn, func(c *world) { c.owners[i].removed() }, "the removal of the record of %s is on disk", o.key.Owner)
		}
	}
	for n, l := range w.late {
		end := func(c *world) { c.late = slices.Delete(c.late, n, n+1) }
		if l.process {
			to(goesOn, end, "the process of %s of the earlier run is dead", shortID(l.id))
		}
		if w.outage {
			continue
		}
		if !l.add {
			to(goesOn, func(c *world) { end(c); c.delete(l.id) }, "the late DEL of %s acts", shortID(l.id))
			continue
		}
		for _, r := range x.addResults(w, l.id, l.requested) {
			if r.err == nil {
				to(goesOn, func(c *world) { end(c); c.allocate(l.id, r.added) }, "the late ADD of %s allocates %v", shortID(l.id), r.added)
			}
		}
	}
}

// faults are what strikes at any moment.
func (x *explorer) faults(w *world, to adder) {
	cfg := x.cfg
	quiet := len(w.late) == 0 && !slices.ContainsFunc(w.owners, func(o owner) bool { return o.run != nil })
	if cfg.outage && !w.outage {
		to(fault, func(c *world) { c.outage = true }, "an outage of the plugin's server")
	}
	if cfg.crash {
		to(fault, func(c *world) { x.restart(c) }, "crash")
		for _, o := range w.owners {
			if o.run == nil || o.run.waits.verb != add && o.run.waits.verb != del || len(w.late) >= cfg.late {
				continue
			}
			s := o.run.waits
			if !cfg.byPod { // assumed
				to(fault, func(c *world) {
					c.late = append(c.late, lateCall{add: s.verb == add, process: true, id: x.leaseID(s.inv), requested: requested(s.inv)})
					x.restart(c)
				}, "crash, and the process of %s lives on", shortID(x.leaseID(s.inv)))
			}
			if outlives := cfg.profile.AddOutlivesSeconds; outlives > 0 {
				acts := lateCall{add: s.verb == add, id: x.leaseID(s.inv), requested: requested(s.inv), until: w.now + outlives}
				to(fault, func(c *world) { c.late = append(c.late, acts); x.restart(c) }, "crash, and the call of %s acts late", shortID(acts.id))
				to(fault, func(c *world) { x.reboot(c); c.late = append(c.late, acts) }, "reboot, and the call of %s acts late", shortID(acts.id))
			}
		}
	}
	if cfg.reboot {
		to(fault, func(c *world) { x.reboot(c) }, "reboot")
	}
	if cfg.bootID {
		to(fault, func(c *world) { c.boot++; x.restart(c) }, "crash, and the boot ID reads differently")
	}
	if cfg.olderStore && cfg.profile.OnNode() {
		for _, l := range w.leases {
			if l.id != "pod" {
				to(fault, func(c *world) { c.delete(l.id); x.reboot(c) }, "reboot, and the store lacks %s", shortID(l.id))
				for _, set := range x.choices(w, nil) {
					to(fault, func(c *world) { c.delete(l.id); c.allocate(l.id, set); x.reboot(c) }, "reboot, and the store has %v for %s", set, shortID(l.id))
				}
			}
		}
	}
	for _, l := range w.freed {
		if !w.free(l.ip) {
			continue
		}
		to(fault, func(c *world) {
			c.allocate(l.id, []netip.Addr{l.ip})
			x.reboot(c)
			recorded := func(o owner) bool { return x.leased(o.disk, l.id) }
			if !slices.ContainsFunc(c.owners, recorded) { // a start releases what has no record before it serves
				c.delete(l.id)
			}
		}, "reboot, and the released lease of %s returns for %s", l.ip, shortID(l.id))
	}
	for _, l := range w.leases {
		if cfg.lostLease && !w.rolledBack && l.id != "pod" && (!cfg.container || l.id == idOf(containerOwner)) {
			to(fault, func(c *world) { c.delete(l.id) }, "the lease of %s is deleted", shortID(l.id))
		}
	}
	for i, o := range w.owners {
		if cfg.lostAway && o.disk != nil && len(o.using) == 0 && quiet {
			to(fault, func(c *world) { c.delete(c.owners[i].disk.IDInUse()); x.restart(c) }, "crash, and then the lease of %s is deleted", o.key.Owner)
		}
		if cfg.lostSpare && attachment.IsWarm(o.key.Owner) && o.st.Rec != nil && quiet {
			to(fault, func(c *world) { c.delete(idOf(o.key.Owner)) }, "the lease of %s is deleted", o.key.Owner)
		}
	}
	for n, o := range w.owners {
		if !cfg.lostAddress || !attachment.OfContainer(o.key.Owner) || len(o.using) < 2 {
			continue
		}
		for _, ip := range o.using {
			has := func(l lease) bool { return l.ip == ip }
			to(fault, func(c *world) {
				c.leases = slices.DeleteFunc(slices.Clone(c.leases), has)
				if cfg.lookup { // assumed: the plugin may give it to another client
					c.owners[n].using = slices.DeleteFunc(slices.Clone(o.using), func(u netip.Addr) bool { return u == ip })
				}
			}, "%s loses %s", o.key.Owner, ip)
		}
	}
	if cfg.clockBack {
		to(fault, func(c *world) { x.setBack(c); x.restart(c) }, "crash, and the clock is set back")
	}
	for i, o := range w.owners {
		if cfg.olderJournal && quiet && o.before != nil {
			to(fault, func(c *world) { c.owners[i].disk = o.before; x.reboot(c) }, "reboot, and the record of %s is an older one", o.key.Owner)
		}
	}
	if cfg.lostJournal && quiet {
		to(fault, func(c *world) {
			for i := range c.owners {
				lent := c.owners[i].disk != nil && c.owners[i].disk.Lent != nil // its ID is never used again
				c.owners[i].disk = nil
				if !cfg.lookup && !lent || !lent && attachment.OfContainer(c.owners[i].key.Owner) {
					c.owners[i].using = nil
				}
			}
			for _, l := range c.leases {
				if !slices.Contains(c.excused, l.id) && l.id != "pod" {
					c.excused = append(slices.Clip(c.excused), l.id)
				}
			}
			x.restart(c)
		}, "the journal is lost")
	}
	if cfg.ranges && len(w.outside) == 0 {
		ip := x.pool[attachment.IPv4][0]
		to(fault, func(c *world) { c.outside = []netip.Addr{ip} }, "%s is outside the ranges", ip)
	}
}

// back is how far a clock is set back.
const back = 20

func (x *explorer) setBack(w *world) {
	w.now -= back
	w.late = slices.Clone(w.late)
	for i := range w.late {
		if w.late[i].until != never {
			w.late[i].until -= back
		}
	}
}

func (x *explorer) reboot(w *world) {
	w.boot++
	if x.cfg.profile.OnNode() {
		w.late = nil
	} else {
		w.late = slices.DeleteFunc(w.late, func(l lateCall) bool { return l.process })
	}
	w.freed = nil
	w.pod = nil // it has ended; its lease may stay
	for i := range w.owners {
		o := &w.owners[i]
		o.using, o.stale = nil, o.disk != nil && o.disk.State != attachment.Tombstone && attachment.OfContainer(o.key.Owner)
	}
	x.restart(w)
}

// begins are the operations that an owner's client and the background begin.
func (x *explorer) begins(w *world, i int, to adder) {
	o := &w.owners[i]
	if o.waits {
		to(goesOn, func(c *world) {
			c.owners[i].waits = false
			x.begin(c, i, task{action: attachment.Release, families: x.cfg.families})
		}, "%s: the DEL that waited begins", o.key.Owner)
		return
	}
	if o.unlisted {
		to(goesOn, func(c *world) {
			c.owners[i].unlisted = false
			x.begin(c, i, task{action: attachment.Cleanup, collect: true, families: x.cfg.families})
		}, "%s: GC releases it", o.key.Owner)
	}
	if attachment.IsWarm(o.key.Owner) && !o.acquired && x.short(w) {
		to(goesOn, func(c *world) {
			c.owners[i].acquired = true
			x.begin(c, i, task{background: true, action: attachment.Acquire})
		}, "%s is acquired", o.key.Owner)
	}
	if t := x.due(w, o); t >= 0 && t <= w.now {
		to(goesOn, func(c *world) { x.begin(c, i, task{background: true}) }, "%s: background", o.key.Owner)
	}
	if w.calls == 0 || attachment.IsWarm(o.key.Owner) {
		return
	}
	if attachment.OfContainer(o.key.Owner) {
		x.beginsOfContainer(w, i, to)
		return
	}
	families := [][]attachment.Family{x.cfg.families}
	if len(x.cfg.families) > 1 {
		families = append(families, x.cfg.families[:1], x.cfg.families[1:])
	}
	for _, f := range families {
		to(chosen, func(c *world) {
			c.calls--
			x.begin(c, i, task{action: attachment.Allocate, families: f})
		}, "%s allocates %v", o.key.Owner, f)
	}
	for _, ip := range o.using {
		to(chosen, func(c *world) {
			c.calls--
			o := &c.owners[i]
			o.using = slices.DeleteFunc(slices.Clone(o.using), func(u netip.Addr) bool { return u == ip })
			x.begin(c, i, task{action: attachment.Release, ip: ip})
		}, "%s releases %s", o.key.Owner, ip)
	}
	if x.cfg.restore {
		for _, ip := range x.pool[attachment.IPv4] {
			to(chosen, func(c *world) {
				c.calls--
				x.begin(c, i, task{action: attachment.Restore, ip: ip, families: []attachment.Family{attachment.IPv4}})
			}, "%s restores %s", o.key.Owner, ip)
		}
	}
}

// short reports whether a lease is to be acquired ahead: there is none, and none is being acquired.
func (x *explorer) short(w *world) bool {
	return !slices.ContainsFunc(w.owners, func(o owner) bool {
		return attachment.IsWarm(o.key.Owner) && (o.run != nil || o.st.Rec != nil && o.st.Rec.State == attachment.Held)
	})
}

// beginsOfContainer are what a container runtime does, through the daemon and, before its installation or
// after its removal, without it. A container whose ADD is repeated without a record uses only what that returns.
func (x *explorer) beginsOfContainer(w *world, i int, to adder) {
	o := &w.owners[i]
	if w.rolledBack {
		x.beginsWithoutDaemon(w, i, to)
		return
	}
	if !x.cfg.lostAddress || len(o.using) == 0 { // assumed: a container that has lost an address is not added again
		variants := []task{{}, {again: true}}[:1+min(len(o.using), x.cfg.again)]
		if x.cfg.requests {
			variants = append(variants, task{requests: true})
		}
		for _, t := range variants {
			t.action, t.families = attachment.Allocate, x.cfg.families
			to(chosen, func(c *world) {
				c.calls--
				if o.st.Rec == nil || x.cfg.bare && !slices.Equal(o.using, o.st.Rec.Addrs()) {
					c.owners[i].using = nil
				}
				c.owners[i].deleted = false
				x.begin(c, i, t)
			}, "%s: ADD, other parameters: %t, requests an address: %t", o.key.Owner, t.again, t.requests)
		}
	}
	to(chosen, func(c *world) {
		c.calls--
		c.owners[i].using, c.owners[i].deleted = nil, true
		x.begin(c, i, task{action: attachment.Release, families: x.cfg.families})
	}, "%s: DEL", o.key.Owner)
	if x.cfg.bare {
		x.beginsWithoutDaemon(w, i, to)
	}
}

func (x *explorer) beginsWithoutDaemon(w *world, i int, to adder) {
	o, id := &w.owners[i], idOf(w.owners[i].key.Owner)
	if len(w.held(id)) > 0 {
		to(chosen, func(c *world) {
			c.calls--
			c.owners[i].using = nil
			c.delete(id)
		}, "%s: DEL without the daemon", o.key.Owner)
	} else if o.st.Rec == nil || x.cfg.lookup && (o.st.Rec.State == attachment.Held || o.st.Lost) { // assumed: a runtime repeats a verb that failed
		for _, set := range x.choices(w, nil) {
			to(chosen, func(c *world) {
				c.calls--
				c.owners[i].using, c.owners[i].deleted = set, false
				c.allocate(id, set)
				c.excused = append(slices.Clip(c.excused), id)
			}, "%s: ADD without the daemon: %v", o.key.Owner, set)
		}
	}
}

// receives is a DEL that the daemon receives while another operation is in progress on the container. Its client
// may leave: it makes no difference.
func (x *explorer) receives(w *world, i int, to adder) {
	if o := &w.owners[i]; x.cfg.leaves && w.calls > 0 && attachment.OfContainer(o.key.Owner) && !o.waits {
		to(chosen, func(c *world) {
			c.calls--
			c.owners[i].using, c.owners[i].deleted, c.owners[i].waits = nil, true, true
		}, "%s: DEL waits", o.key.Owner)
	}
}

// requested are the addresses that the daemon and the runtime request.
func requested(inv call.Invocation) []netip.Addr {
	ips := call.Container{Args: inv.Args}.Requested()
	for _, p := range inv.Requested {
		ips = append(ips, p.Addr())
	}
	return ips
}

// outcomes are the outcomes of the step that an operation waits for.
func (x *explorer) outcomes(w *world, i int, to adder) {
	o := &w.owners[i]
	s := o.run.waits
	id := x.leaseID(s.inv)
	// then continues with an outcome, after a change of the world; nil for none.
	then := func(k moveKind, out outcome, change func(*world), format string, args ...any) {
		to(k, func(c *world) {
			if change != nil {
				change(c)
			}
			r := *c.owners[i].run
			r.had = append(slices.Clip(r.had), out)
			c.owners[i].run = &r
			x.advance(c, i)
		}, o.key.Owner+": "+format, args...)
	}
	if (s.verb == add || s.verb == del || s.verb == check) && slices.ContainsFunc(w.late, func(l lateCall) bool { return l.process && l.id == id }) {
		return // it waits for the lock of the ID
	}
	switch s.verb {
	case process:
		then(goesOn, outcome{}, nil, "gets a plugin process")
		if !o.run.task.background {
			k := fault
			if x.cfg.leaves {
				k = chosen
			}
			then(k, outcome{err: errLeft}, nil, "leaves the queue")
		}
	case other:
		x.others(w, s, then)
	case write:
		x.writes(i, s, then)
	case remove:
		gone := func(c *world) { c.owners[i].removed(); c.replaced(s.instead) }
		then(goesOn, outcome{}, gone, "removes its record")
		then(fault, outcome{}, func(c *world) { c.owners[i].removing = true }, "removes its record, and that is not on disk yet")
		then(fault, outcome{err: errFault}, nil, "the removal fails")
		then(fault, outcome{err: errFault}, gone, "the removal fails, but is on disk")
	case lookup:
		if x.cfg.lookup {
			then(goesOn, outcome{ips: w.held(id)}, nil, "looks up %s: %v", shortID(id), w.held(id))
		}
		if !x.cfg.lookup || len(w.held(id)) == 0 { // assumed
			k := goesOn
			if x.cfg.lookup {
				k = fault
			}
			then(k, outcome{err: errFault}, nil, "no lookup")
		}
	case holds:
		has := w.held(id)
		all := !slices.ContainsFunc(s.addrs, func(ip netip.Addr) bool { return !slices.Contains(has, ip) })
		then(goesOn, outcome{ok: all}, nil, "the store has %v for %s: %v", s.addrs, shortID(id), all)
		then(fault, outcome{err: errFault}, nil, "the lookup fails")
	case check:
		x.checks(w, id, then)
	case del:
		if o.run.acted {
			then(goesOn, outcome{}, nil, "DEL of %s ends", shortID(id))
			return
		}
		if x.cfg.profile.AddOutlivesSeconds > 0 && !w.outage && !x.refusesDel(w, id) {
			to(goesOn, func(c *world) {
				r := *c.owners[i].run
				r.acted = true
				c.owners[i].run = &r
				c.delete(id)
			}, "%s: DEL of %s acts", o.key.Owner, shortID(id))
		}
		x.dels(w, id, then)
	case add:
		x.adds(w, s.inv, then)
	}
}

type continuation func(k moveKind, out outcome, change func(*world), format string, args ...any)

func (x *explorer) others(w *world, s step, then continuation) {
	name := w.owners[s.owner].key.Owner
	busy := w.owners[s.owner].run != nil
	switch {
	case s.begin == nil && busy: // it is waited for
	case s.begin == nil:
		then(goesOn, outcome{err: w.owners[s.owner].settled}, nil, "the operation on %s has ended", name)
	case busy && s.begin.lost != nil: // waited for, for some time
		then(fault, outcome{}, nil, "%s stays busy", name)
	case busy:
		then(goesOn, outcome{}, nil, "%s is busy", name)
	default:
		then(goesOn, outcome{ok: true}, func(c *world) { x.begin(c, s.owner, *s.begin) }, "works on %s", name)
	}
}

// replaced removes the records of owners from the disk.
func (w *world) replaced(owners []string) {
	for _, o := range owners {
		w.owners[w.find(attachment.Key{Pool: "p", Owner: o})].removed()
	}
}

func (x *explorer) writes(i int, s step, then continuation) {
	r := s.rec
	disk := r.Clone()
	written := func(c *world) {
		i := c.find(attachment.Key{Pool: "p", Owner: r.Owner})
		c.replaced(s.instead)
		if d := c.owners[i].disk; x.cfg.olderJournal && d != nil && d.State == attachment.Held {
			c.owners[i].before = d
		}
		c.owners[i].disk, c.owners[i].removing = &disk, false
		c.owners[i].stale = c.owners[i].stale && (disk.State == attachment.Held || disk.State == attachment.Releasing)
	}
	what := text{func() string { return fmt.Sprintf("%s %v claims %v", r.State, r.Addrs(), r.Claims) }}
	then(goesOn, outcome{}, written, "writes %s", what)
	then(fault, outcome{err: errFault}, nil, "the write of %s fails", what)
	then(fault, outcome{err: errFault}, written, "the write of %s fails, but is on disk", what)
}

func (x *explorer) checks(w *world, id string, then continuation) {
	p := x.cfg.profile
	switch {
	case p.VerifyBy == profile.VerifyNothing:
		then(goesOn, outcome{}, nil, "CHECK of %s succeeds", shortID(id))
	case len(w.held(id)) == 0 || w.outage: // a plugin without its server may report a loss
		then(goesOn, outcome{err: refused("CHECK", 100, lostMessage)}, nil, "CHECK of %s: not held", shortID(id))
	default:
		then(goesOn, outcome{}, nil, "CHECK of %s succeeds", shortID(id))
	}
	then(fault, outcome{err: refused("CHECK", 11, "fault")}, nil, "CHECK of %s fails", shortID(id))
}

func (x *explorer) dels(w *world, id string, then continuation) {
	gone := func(c *world) { c.delete(id) }
	if w.outage {
		then(goesOn, outcome{err: refused("DEL", 11, "fault")}, nil, "DEL of %s is refused in the outage", shortID(id))
		return
	}
	late := func(until int) func(*world) {
		return func(c *world) { c.late = append(c.late, lateCall{id: id, until: until}) }
	}
	if x.refusesDel(w, id) {
		then(goesOn, outcome{err: refused("DEL", 100, "not found")}, nil, "DEL of %s is refused: it has nothing", shortID(id))
		return
	}
	if x.cfg.profile.SingleUseIDs() && len(w.late) < x.cfg.late {
		then(goesOn, outcome{}, late(never), "DEL of %s is queued", shortID(id))
	}
	then(goesOn, outcome{}, gone, "DEL of %s", shortID(id))
	then(fault, outcome{err: refused("DEL", 100, "fault")}, nil, "DEL of %s is refused", shortID(id))
	then(fault, outcome{err: refused("DEL", 100, "fault")}, gone, "DEL of %s is refused after its work", shortID(id))
	then(fault, outcome{err: unknown("DEL")}, gone, "DEL of %s: unknown, done", shortID(id))
	then(fault, outcome{err: unknown("DEL")}, nil, "DEL of %s: unknown, not done", shortID(id))
	if x.actsLate(w) {
		then(fault, outcome{err: unknown("DEL")}, late(w.now+x.cfg.profile.AddOutlivesSeconds), "DEL of %s: unknown, acts late", shortID(id))
	}
}

func (x *explorer) refusesDel(w *world, id string) bool {
	return x.cfg.strictDel && len(w.held(id)) == 0
}

func (x *explorer) actsLate(w *world) bool {
	return x.cfg.profile.AddOutlivesSeconds > 0 && len(w.late) < x.cfg.late
}

// addResult is a result that an ADD may have; added is what it allocates.
type addResult struct {
	ips, added []netip.Addr
	err        error
}

func (x *explorer) addResults(w *world, id string, want []netip.Addr) []addResult {
	has := w.held(id)
	if x.cfg.byPod && id != "pod" {
		has = slices.Concat(w.held(idOf(containerOwner)), w.held(idOf(nextOwner)))
	}
	if len(has) > 0 {
		switch x.cfg.profile.RepeatedAdd {
		case profile.RepeatedAddRefused:
			return []addResult{{err: refused("ADD", 100, "duplicate")}}
		case profile.RepeatedAddSameAnswer:
			return []addResult{{ips: has}}
		}
	}
	var all []addResult
	for _, set := range x.choices(w, want) {
		if len(set) == len(x.cfg.families) {
			all = append(all, addResult{ips: set, added: set})
		}
	}
	if x.cfg.lowest {
		all = all[:min(len(all), 1)]
	}
	if len(all) == 0 {
		all = append(all, addResult{err: refused("ADD", 100, "no address")})
	}
	return all
}

func (x *explorer) adds(w *world, inv call.Invocation, then continuation) {
	id, want := x.leaseID(inv), requested(inv)
	if w.outage {
		then(goesOn, outcome{err: refused("ADD", 11, "fault")}, nil, "ADD of %s is refused in the outage", shortID(id))
		return
	}
	for _, r := range x.addResults(w, id, want) {
		act := func(c *world) { c.allocate(id, r.added) }
		if r.err != nil {
			then(goesOn, outcome{err: r.err}, nil, "ADD %v of %s is refused", want, shortID(id))
			continue
		}
		then(goesOn, outcome{ips: r.ips}, act, "ADD %v of %s returns %v", want, shortID(id), r.ips)
		then(fault, outcome{err: refused("ADD", 100, "fault")}, act, "ADD %v of %s is refused after it allocated %v", want, shortID(id), r.added)
		then(fault, outcome{err: unknown("ADD")}, act, "ADD %v of %s: unknown, allocated %v", want, shortID(id), r.added)
	}
	then(fault, outcome{err: refused("ADD", 100, "fault")}, nil, "ADD %v of %s is refused for no reason", want, shortID(id))
	then(fault, outcome{err: refused("ADD", 11, "fault")}, nil, "ADD %v of %s: try again later", want, shortID(id))
	then(fault, outcome{err: unknown("ADD")}, nil, "ADD %v of %s: unknown, not done", want, shortID(id))
	if x.actsLate(w) {
		then(fault, outcome{err: unknown("ADD")}, func(c *world) {
			c.late = append(c.late, lateCall{add: true, id: id, requested: want, until: w.now + x.cfg.profile.AddOutlivesSeconds})
		}, "ADD %v of %s: unknown, acts late", want, shortID(id))
	}
}

// text is formatted only for a trace.
type text struct{ text func() string }

func (t text) String() string { return t.text() }
