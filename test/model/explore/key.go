package main

import (
	"crypto/sha256"
	"encoding/binary"
	"net/netip"
	"strings"
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/daemon/attachment"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
)

// key identifies a world: two worlds with one key have the same future.
type key [16]byte

// encoder appends what a world consists of. Moments are relative to now. The ones before since, when the
// operation in progress began, are all the same to it.
type encoder struct {
	b          []byte
	now, since int
}

func (e *encoder) num(n int)    { e.b = binary.AppendVarint(e.b, int64(n)) }
func (e *encoder) str(s string) { e.num(len(s)); e.b = append(e.b, s...) }

func (e *encoder) moment(n int) {
	if n == never {
		e.b = append(e.b, 'n')
		return
	}
	e.num(max(n, e.since-1) - e.now)
}

func (e *encoder) time(t time.Time) {
	if t.IsZero() {
		e.b = append(e.b, 'z')
		return
	}
	e.moment(int(t.Sub(base) / time.Second))
}

func (e *encoder) bools(bs ...bool) {
	n := 0
	for i, b := range bs {
		if b {
			n |= 1 << i
		}
	}
	e.num(n)
}

func (e *encoder) addr(a netip.Addr) {
	if !a.IsValid() {
		e.b = append(e.b, 0)
		return
	}
	b := a.As16()
	e.b = append(e.b, byte(a.BitLen()), b[15])
}

// list appends the number of elements, and each.
func list[T any](e *encoder, all []T, each func(T)) {
	e.num(len(all))
	for _, x := range all {
		each(x)
	}
}

func (e *encoder) addrs(all []netip.Addr) { list(e, all, e.addr) }

func (e *encoder) families(all []attachment.Family) {
	list(e, all, func(f attachment.Family) { e.b = append(e.b, f[3]) })
}

func (e *encoder) inv(inv call.Invocation) {
	e.str(short(inv.ContainerID))
	list(e, inv.Requested, func(p netip.Prefix) { e.addr(p.Addr()) })
	e.bools(inv.StoreProven, inv.AddRefused, inv.NetNS == "first", strings.HasSuffix(inv.Args, argsAgain), strings.Contains(inv.Args, argsRequest))
	e.time(inv.AddActsUntil)
}

func (e *encoder) record(r *attachment.Record) {
	if r == nil {
		e.num(-1)
		return
	}
	e.str(string(r.State))
	e.num(r.Generation)
	e.bools(r.Confirming)
	e.time(r.LateDel.Until)
	e.addrs(r.Addrs())
	e.families(r.Claims)
	e.addrs(r.GivenUp)
	e.str(r.BootID)
	e.time(r.ReleaseAt)
	list(e, r.Invocations, e.inv)
	if r.Lent != nil {
		e.str(r.Lent.Warm)
		e.bools(r.Lent.Container.NetNS == "first")
	}
}

func (e *encoder) owner(o *owner, verifyInterval bool) {
	s := &o.st
	e.since = e.now
	if o.run != nil {
		e.since = o.run.began
	}
	e.bools(s.ID != "", s.Dirty, s.Lost, s.WaitsForOwner, s.DelInVain, s.VerifyDue, o.doubted, o.queued, o.run != nil, o.stale, o.deleted, o.waits, o.removing, o.unlisted, o.acquired)
	e.num(min(s.Failures, 2+s.Failures%2)) // more makes no difference but by turns
	if s.Failures > 0 {
		e.time(s.RetryAt)
	}
	if verifyInterval {
		e.time(s.Verified)
	}
	e.str(string(s.ReleaseAs))
	e.str(s.Instead)
	e.addrs(o.using)
	e.addrs(o.reserved)
	e.record(s.Rec)
	e.record(o.disk)
	e.record(o.before)
	if o.run == nil {
		return
	}
	t := o.run.task
	e.moment(o.run.began)
	e.bools(o.run.acted)
	e.str(string(t.action))
	e.bools(t.background, t.freed)
	e.addr(t.ip)
	e.families(t.families)
	e.addrs(t.outside)
	e.addrs(t.kept)
	e.bools(t.again, t.requests, t.collect, t.keep, t.lost != nil, t.lost == o.run.start.Rec)
	e.record(o.run.start.Rec)
	list(e, o.run.had, func(had outcome) { e.outcome(had, s.Rec) })
}

// outcome appends an outcome of an operation on the attachment that has a record.
func (e *encoder) outcome(o outcome, mine *attachment.Record) {
	e.bools(o.ok, o.err != nil)
	if o.err != nil {
		e.str(o.err.Error())
	}
	e.addrs(o.ips)
	if o.at != 0 {
		e.moment(o.at)
	}
	if o.other.Owner != "" {
		e.other(o.other, mine)
	}
	list(e, o.spare, func(s attachment.Other) { e.other(s, mine) })
}

func (e *encoder) other(o attachment.Other, mine *attachment.Record) {
	r := o.Record
	e.str(o.Owner)
	e.bools(o.Lost, r != nil, r != nil && mine != nil && r.Created.Before(mine.Created), r != nil && mine != nil && r.Created.Equal(mine.Created))
	e.addrs(r.Addrs())
}

func (x *explorer) key(w *world) key {
	e := encoder{b: make([]byte, 0, 2048), now: w.now, since: w.now}
	for _, n := range []int{w.boot, w.calls, w.faults, w.pods, len(w.leases), len(w.late)} {
		e.num(n)
	}
	for _, l := range w.leases {
		e.str(short(l.id))
		e.addr(l.ip)
	}
	for _, l := range w.late {
		e.bools(l.add, l.process)
		e.str(short(l.id))
		e.addrs(l.requested)
		e.moment(l.until)
	}
	list(&e, w.freed, func(l lease) { e.str(short(l.id)); e.addr(l.ip) })
	for _, id := range w.excused {
		e.str(short(id))
	}
	e.str(w.wrong)
	e.addrs(w.pod)
	e.addrs(w.outside)
	e.bools(w.outage, w.rolledBack)
	for i := range w.owners {
		for j := range i {
			e.bools(w.older(j, i))
		}
	}
	for i := range w.owners {
		e.owner(&w.owners[i], x.cfg.verifyInterval > 0)
	}
	sum := sha256.Sum256(e.b)
	return key(sum[:16])
}
