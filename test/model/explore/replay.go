package main

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/attachment"
)

// A run is an operation in progress. The protocol is ordinary code, so an operation that waits for a
// step is resumed by running it again from its start with the outcomes that it has had.
type run struct {
	start attachment.Status
	task  task
	began int
	// had are the outcomes of its reads and steps, in order.
	had []outcome
	// waits is the step that it waits for. acted: a DEL that succeeds has acted, but not ended.
	waits step
	acted bool
}

// task is what an operation is for.
type task struct {
	action     attachment.Action
	background bool
	ip         netip.Addr
	families   []attachment.Family
	freed      bool
	outside    []netip.Addr // the ranges, at its begin
	kept       []netip.Addr // the addresses that the container's pod had, at its begin
}

// kind is the kind of a step.
type kind byte

const (
	write kind = iota + 1
	remove
	add
	del
	check
	holds
	lookup
	process
	tryProcess
	other // another operation is begun, or waited for
)

// step is what an operation does next.
type step struct {
	verb  kind
	rec   attachment.Record
	inv   call.Invocation
	addrs []netip.Addr
	// owner is the other one, begin what it begins there; nil to wait for its end.
	owner int
	begin *task
}

// outcome is what a read or a step returned.
type outcome struct {
	err   error
	ips   []netip.Addr
	ok    bool
	at    int
	other attachment.Other
}

// paused ends a run at its next step.
type paused struct{}

// replay is the World of a run.
type replay struct {
	*explorer
	w   *world
	i   int
	r   *run
	pos int
}

// read returns a recorded outcome, or reads the world now.
func (p *replay) read(now func() outcome) outcome {
	if p.pos == len(p.r.had) {
		p.r.had = append(slices.Clip(p.r.had), now())
	}
	p.pos++
	return p.r.had[p.pos-1]
}

// step returns a recorded outcome, or ends the run here.
func (p *replay) step(s step) outcome {
	if p.pos == len(p.r.had) {
		p.r.waits = s
		panic(paused{})
	}
	p.pos++
	return p.r.had[p.pos-1]
}

// advance runs an operation to its next step, or to its end.
func (x *explorer) advance(w *world, i int) {
	o := &w.owners[i]
	r := *o.run
	r.waits, r.acted = step{}, false
	o.run = &r
	op := x.operation(w, i, &r)
	done := false
	var err error
	func() {
		defer func() {
			if p := recover(); p != nil {
				if _, ok := p.(paused); !ok {
					panic(p)
				}
			}
		}()
		err = x.do(op, r.task)
		waited := errors.Is(err, errLeft)
		op.Finish(err, !r.task.background, waited, func(int) time.Duration { return time.Second })
		done, o.result = true, err
	}()
	o.st = op.Status
	if done {
		o.run, o.reserved = nil, nil
		x.ended(w, i, r.task, err)
	}
}

// operation returns the operation of a run at its start.
func (x *explorer) operation(w *world, i int, r *run) *attachment.Operation {
	op := &attachment.Operation{Key: w.owners[i].key, Status: r.start, Opts: x.options(w), Freed: r.task.freed}
	op.World = &replay{explorer: x, w: w, i: i, r: r}
	if !r.task.background {
		op.Action = r.task.action
	}
	return op
}

func (x *explorer) do(op *attachment.Operation, t task) error {
	ofContainer := attachment.OfContainer(op.Owner)
	switch {
	case t.action == attachment.Allocate && ofContainer:
		return op.Add(nil)
	case t.action == attachment.Allocate:
		return op.Allocate(attachment.Want{Families: t.families, Any: true})
	case t.action == attachment.Restore:
		return op.Allocate(attachment.Want{Families: t.families, Required: []netip.Addr{t.ip}})
	case t.action == attachment.Release && ofContainer:
		return op.Del()
	case t.action == attachment.Release:
		return op.Release(t.ip, false)
	case t.action == attachment.Cleanup:
		return op.EndCooldown()
	}
	return op.Reconcile()
}

func (p *replay) Now() time.Time {
	return at(p.read(func() outcome { return outcome{at: p.w.now} }).at)
}

func (p *replay) NewUUID() string { return "uuid" }

func (p *replay) UniqueID(id string) string {
	return fmt.Sprintf("%s-u%d", id, p.read(func() outcome { p.w.unique++; return outcome{at: p.w.unique} }).at)
}

func (p *replay) Publish(attachment.Status) {}

func (p *replay) Note(attachment.Note) {}

func (p *replay) Stopping() bool { return false }

func (p *replay) Write(r attachment.Record) error { return p.step(step{verb: write, rec: r}).err }

func (p *replay) Remove(_, _ string) error { return p.step(step{verb: remove}).err }

func (p *replay) Network() (call.Network, error) {
	return call.Network{Name: "net", ServesContainers: !p.cfg.bare && !p.w.rolledBack}, nil
}

func (p *replay) Configured() error { return nil }

func (p *replay) Outside(ip netip.Addr) bool {
	return p.cfg.ranges && p.read(func() outcome { return outcome{ok: slices.Contains(p.w.outside, ip)} }).ok
}

func (p *replay) NewInvocation(_ call.Network, id string) (call.Invocation, error) {
	inv := invocation
	inv.ContainerID, inv.Profile = id, p.cfg.profile
	return inv, nil
}

// WithContainer returns another network namespace than that of the first ADD.
func (p *replay) WithContainer(inv call.Invocation) (call.Invocation, error) {
	if p.cfg.again {
		inv.NetNS = againNetNS
	}
	return inv, nil
}

const againNetNS = "again"

// invocation is that of an ADD. Each container is of one pod.
var invocation = call.Invocation{Network: "net", CNIVersion: "1.0.0", Plugin: "p", IfName: "eth0", Args: "K8S_POD_NAMESPACE=n;K8S_POD_NAME=web-0"}

func (p *replay) Call(verb string, inv call.Invocation) (call.Result, error) {
	o := p.step(step{verb: map[string]kind{call.VerbAdd: add, call.VerbDel: del, call.VerbCheck: check}[verb], inv: inv})
	return result(o.ips, p.cfg.lookup), o.err
}

func (p *replay) Holds(inv call.Invocation, addrs []netip.Addr) (bool, error) {
	o := p.step(step{verb: holds, inv: inv, addrs: addrs})
	return o.ok, o.err
}

func (p *replay) Lookup(inv call.Invocation) (call.Result, error) {
	o := p.step(step{verb: lookup, inv: inv})
	return result(o.ips, true), o.err
}

func (p *replay) Process() error { return p.step(step{verb: process}).err }

func (p *replay) TryProcess() (bool, error) {
	o := p.step(step{verb: tryProcess})
	return o.ok, o.err
}

func (p *replay) AssignID(string) error { return nil }

func (p *replay) Holder(ip netip.Addr) (attachment.Other, bool) {
	o := p.read(func() outcome {
		for j := range p.w.owners {
			if s := p.w.owners[j].st; j != p.i && slices.Contains(s.Rec.Reserved(), ip) {
				return outcome{ok: true, other: p.w.other(j)}
			}
		}
		return outcome{}
	})
	return o.other, o.ok
}

func (p *replay) Older() bool {
	return p.read(func() outcome {
		j, _ := p.w.conflict(p.i, p.w.owners[p.i].st.Rec.Reserved())
		return outcome{ok: j >= 0 && p.w.older(j, p.i)}
	}).ok
}

func (p *replay) Reserve(_ string, ips []netip.Addr) (attachment.Other, netip.Addr) {
	o := p.read(func() outcome {
		j, ip := p.w.conflict(p.i, ips)
		if j < 0 {
			p.w.owners[p.i].reserved = ips
			return outcome{}
		}
		return outcome{ok: true, other: p.w.other(j), ips: []netip.Addr{ip}}
	})
	if !o.ok {
		return attachment.Other{}, netip.Addr{}
	}
	return o.other, o.ips[0]
}

func (p *replay) Unreserve([]netip.Addr) {
	p.read(func() outcome { p.w.owners[p.i].reserved = nil; return outcome{} })
}

func (p *replay) Doubt(other attachment.Other) {
	p.read(func() outcome {
		o := &p.w.owners[p.w.find(other.Key)]
		o.doubted = true
		o.queued = o.queued || o.st.Failures == 0
		return outcome{}
	})
}

func (p *replay) Doubted() bool {
	return p.read(func() outcome { return outcome{ok: p.w.owners[p.i].doubted} }).ok
}

func (p *replay) SetDoubted(due bool) {
	if p.pos == len(p.r.had) && p.r.waits.verb != 0 {
		return // deferred, while a pause ends the run
	}
	p.read(func() outcome { p.w.owners[p.i].doubted = due; return outcome{} })
}

func (p *replay) Freed(o attachment.Other) { p.another(o.Key, &task{background: true, freed: true}) }

func (p *replay) Kept(inv call.Invocation) (attachment.Key, []call.Address) {
	o := p.read(func() outcome {
		if j := p.w.kept(p.i); j >= 0 {
			return outcome{other: p.w.other(j)}
		}
		return outcome{}
	})
	return o.other.Key, result(o.other.Addresses, false).Addresses
}

func (p *replay) EndCooldown(k attachment.Key) {
	p.another(k, &task{action: attachment.Cleanup, background: true})
}

func (p *replay) EndOldestCooldown([]netip.Addr) bool {
	o := p.read(func() outcome {
		for j := range p.w.owners {
			if r := p.w.owners[j].st.Rec; j != p.i && r != nil && r.State == attachment.Cooldown {
				return outcome{other: p.w.other(j)}
			}
		}
		return outcome{}
	})
	return o.other.Owner != "" && p.another(o.other.Key, &task{action: attachment.Cleanup, background: true})
}

// another begins an operation on another attachment and waits for its end, unless one is in progress there. It
// reports whether it succeeded.
func (p *replay) another(k attachment.Key, t *task) bool {
	j := p.w.find(k)
	if p.step(step{verb: other, owner: j, begin: t}).ok {
		return p.step(step{verb: other, owner: j}).err == nil
	}
	return false
}
