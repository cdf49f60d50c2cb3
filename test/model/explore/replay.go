package main

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/daemon/attachment"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
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
	outside    []netip.Addr       // the ranges, at its begin
	kept       []netip.Addr       // the addresses that the container's pod had, at its begin
	collect    bool               // a GC releases the container
	keep       bool               // another container of the pod has it added again
	lost       *attachment.Record // an address of it was allocated to another attachment
	again      bool               // with the other parameters of a repeated ADD
	requests   bool               // with argsRequest
}

// netns is the network namespace of a container.
func (t task) netns() string {
	if t.again {
		return "another"
	}
	return "first"
}

var errNotKept = errors.New("not kept")

// argsAgain is a part of other CNI_ARGS, argsRequest the request of an address.
const argsAgain, argsRequest = ";K8S_POD_UID=2", ";IP=10.0.0.2"

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
	other // another operation is begun, or waited for
)

// step is what an operation does next.
type step struct {
	verb  kind
	rec   attachment.Record
	inv   call.Invocation
	addrs []netip.Addr
	// instead are owners whose records a write or removal removes, too.
	instead []string
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
	spare []attachment.Other
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
		done, o.result = true, err
		if r.task.background {
			o.settled = err
		}
		if !r.task.keep && r.task.lost == nil {
			op.Finish(err, !r.task.background, errors.Is(err, errLeft), func(int) time.Duration { return time.Second })
		}
	}()
	o.st = op.Status
	if done {
		o.run, o.reserved = nil, nil
		x.ended(w, i, r.task, err)
	}
}

// operation returns the operation of a run at its start.
func (x *explorer) operation(w *world, i int, r *run) *attachment.Operation {
	op := &attachment.Operation{Key: w.owners[i].key, Status: r.start, Opts: x.options(w)}
	op.World = &replay{explorer: x, w: w, i: i, r: r}
	if !r.task.background {
		op.Action = r.task.action
	}
	if attachment.OfContainer(op.Owner) && !r.task.background && !r.task.collect {
		op.Container = &call.Container{Attachment: call.Attachment{ContainerID: idOf(op.Owner), IfName: "eth0"}, NetNS: r.task.netns(), Args: podArgs}
		if r.task.requests {
			op.Container.Args += argsRequest
		}
		if r.task.again {
			op.Container.Args += argsAgain
		}
	}
	return op
}

func (x *explorer) do(op *attachment.Operation, t task) error {
	ofContainer := attachment.OfContainer(op.Owner)
	switch {
	case t.action == attachment.Acquire:
		return op.Acquire()
	case t.action == attachment.Allocate && ofContainer:
		return op.Add()
	case t.action == attachment.Allocate:
		return op.Allocate(attachment.Want{Families: t.families, Any: true})
	case t.action == attachment.Restore:
		return op.Allocate(attachment.Want{Families: t.families, Required: []netip.Addr{t.ip}})
	case t.action == attachment.Release && ofContainer:
		return op.Del()
	case t.action == attachment.Release:
		return op.Release(t.ip, false)
	case t.collect:
		return op.Del()
	case t.keep:
		return op.Keep()
	case t.lost != nil:
		if !op.KeepLost(t.lost) {
			return errNotKept
		}
		return nil
	case t.action == attachment.Cleanup:
		return op.EndCooldown()
	}
	return op.Settle(t.freed)
}

func (p *replay) Now() time.Time {
	return at(p.read(func() outcome { return outcome{at: p.w.now} }).at)
}

func (p *replay) Unique() string {
	return fmt.Sprint(p.read(func() outcome { p.w.unique++; return outcome{at: p.w.unique} }).at)
}

func (p *replay) Publish(attachment.Status) {}

func (p *replay) Report(attachment.Event) {}

func (p *replay) Write(r attachment.Record, instead ...string) error {
	return p.step(step{verb: write, rec: r, instead: instead}).err
}

func (p *replay) Remove(_ string, owners ...string) error {
	return p.step(step{verb: remove, instead: owners[1:]}).err
}

func (p *replay) Network() (call.Network, error) {
	return call.Network{Name: "net", ServesContainers: !p.cfg.bare && !p.w.rolledBack}, nil
}

func (p *replay) Outside(ip netip.Addr) (bool, error) {
	return p.cfg.ranges && p.read(func() outcome { return outcome{ok: slices.Contains(p.w.outside, ip)} }).ok, nil
}

// podArgs are the CNI_ARGS of each container: all are of one pod.
const podArgs = "K8S_POD_NAMESPACE=n;K8S_POD_NAME=web-0"

func (p *replay) Invocation(verb string, n call.Network, id string, c *call.Container) (call.Invocation, error) {
	if p.cfg.interfaces && verb == call.VerbAdd && p.read(func() outcome { return outcome{ok: p.w.owners[1-p.i].st.Rec != nil} }).ok {
		return call.Invocation{}, attachment.NewError(attachment.Failed, "another interface has addresses")
	}
	inv := call.Invocation{Network: n.Name, CNIVersion: "1.0.0", Plugin: "p", IfName: "eth0", ContainerID: id, Profile: p.cfg.profile}
	if c != nil {
		return p.WithContainer(inv, *c)
	}
	return inv, nil
}

func (p *replay) WithContainer(inv call.Invocation, c call.Container) (call.Invocation, error) {
	inv.NetNS, inv.Args = c.NetNS, c.Args
	return inv, nil
}

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

func (p *replay) AssignID(string) error { return nil }

func (p *replay) Conflict(_ string, ips []netip.Addr) (attachment.Other, netip.Addr) {
	return p.conflict(ips, true, func() {})
}

func (p *replay) Reserve(_ string, ips []netip.Addr) (attachment.Other, netip.Addr) {
	return p.conflict(ips, false, func() { p.w.owners[p.i].reserved = ips })
}

func (p *replay) conflict(ips []netip.Addr, releasing bool, none func()) (attachment.Other, netip.Addr) {
	o := p.read(func() outcome {
		j, ip := p.w.conflict(p.i, ips, releasing)
		if j < 0 {
			none()
			return outcome{}
		}
		return outcome{ok: true, other: p.w.other(j), ips: []netip.Addr{ip}}
	})
	if !o.ok {
		return attachment.Other{}, netip.Addr{}
	}
	return o.other, o.ips[0]
}

func (p *replay) Spare() []attachment.Other {
	return p.read(func() outcome {
		var warm outcome
		var cooldown []attachment.Other
		for j, o := range p.w.owners {
			switch {
			case j == p.i || o.st.Rec == nil:
			case o.st.Rec.State == attachment.Cooldown:
				cooldown = append(cooldown, p.w.other(j))
			case attachment.IsWarm(o.key.Owner) && o.st.Rec.State == attachment.Held:
				warm.spare = append(warm.spare, p.w.other(j))
			}
		}
		warm.spare = append(cooldown, warm.spare...)
		return warm
	}).spare
}

func (p *replay) Keeper(inv call.Invocation) (attachment.Other, bool) {
	o := p.read(func() outcome {
		for j, o := range p.w.owners {
			if j != p.i && o.st.Rec.Keeps(inv) {
				return outcome{ok: true, other: p.w.other(j)}
			}
		}
		return outcome{}
	})
	return o.other, o.ok
}

// Settle begins work on another attachment and waits for its end, unless an operation is in progress there.
func (p *replay) Settle(o attachment.Other, work attachment.Work, _ bool) bool {
	j := p.w.find(o.Key)
	switch work {
	case attachment.Doubted:
		return p.read(func() outcome {
			o := &p.w.owners[j]
			o.doubted = true
			o.queued = o.queued || o.st.Failures == 0
			return outcome{}
		}).ok
	case attachment.Taken, attachment.Given:
		return p.read(func() outcome { return outcome{ok: p.hand(j, o.Record, work)} }).ok
	case attachment.EndCooldown:
		t := &task{background: true, action: attachment.Cleanup}
		return p.step(step{verb: other, owner: j, begin: t}).ok && p.step(step{verb: other, owner: j}).err == nil
	}
	t := &task{background: true, freed: work == attachment.Freed, keep: work == attachment.Kept}
	if work == attachment.Missing {
		t.lost = o.Record
	}
	return p.step(step{verb: other, owner: j, begin: t}).ok && p.step(step{verb: other, owner: j}).err == nil
}

// hand takes the record of another attachment, or gives it one: both only change memory.
func (p *replay) hand(j int, r *attachment.Record, work attachment.Work) bool {
	o := &p.w.owners[j]
	if o.run != nil {
		return false
	}
	op := p.operation(p.w, j, &run{start: o.st, task: task{background: true}})
	op.VerifyDue = op.VerifyDue || o.doubted
	done := work == attachment.Taken && op.Take(r) || work == attachment.Given && op.Give(r)
	if done {
		o.st, o.doubted = op.Status, false
	}
	return done
}
