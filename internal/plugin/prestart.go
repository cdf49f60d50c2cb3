package plugin

import (
	"slices"

	"github.com/delegated-ipam/delegated-ipam/internal/containerid"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/internal/process"
)

// Prestart starts the processes of the calls that come next (docs/design/how-it-works.md, Running a
// plugin, "Prestart"), in their order, up to the first that cannot be prestarted or is on another
// interface. The calls of the interface use them until discard is called, which ends the rest; it
// must be called once, before the next Prestart for the interface.
func (r *Runner) Prestart(calls ...call.Upcoming) (discard func()) {
	p := &prestarted{}
	for _, c := range calls {
		if interfaceOf(c.Call.Invocation) != interfaceOf(calls[0].Call.Invocation) || !r.prestart(p, c) {
			break
		}
	}
	if p.lock == nil {
		return func() {}
	}
	of := interfaceOf(calls[0].Call.Invocation)
	r.prestarted.Store(of, p)
	return func() { r.endPrestarted(of, p) }
}

// containerInterface is an interface of a container. The calls for one are made one after the other, those
// for two interfaces of a container at the same time. An ID of ours has one interface, whose name may change.
type containerInterface struct{ containerID, ifName string }

func interfaceOf(inv call.Invocation) containerInterface {
	if containerid.Match(inv.ContainerID) {
		return containerInterface{containerID: inv.ContainerID}
	}
	return containerInterface{inv.ContainerID, inv.IfName}
}

// endPrestarted ends the unused processes of an interface, once.
func (r *Runner) endPrestarted(of containerInterface, p *prestarted) {
	if !r.prestarted.CompareAndDelete(of, p) {
		return
	}
	for _, waiting := range p.waiting {
		waiting.Discard()
		r.opts.Observer.Running(-1)
	}
	p.lock.Unlock()
}

// prestart starts the process of one call, and reports whether it was started. What prevents it is
// not an error: the call itself meets it again, and reports it.
func (r *Runner) prestart(p *prestarted, c call.Upcoming) bool {
	if !c.CanPrestart() || checkNetNS(c.Call.NetNS) != nil {
		return false
	}
	inv, err := r.withExecutable(c.Call.Invocation)
	if err != nil || r.Embedded(inv.Plugin) != "" {
		return false
	}
	in, err := r.prepare(c.Verb, inv)
	if err != nil || len(in.stdin) > process.MaxConfig || !r.isELF(in.binary) {
		return false
	}
	if p.lock == nil {
		// A process of a previous run that has the lock is waited for by the call.
		if p.lock, err = r.locks.TryLock(c.Call.ContainerID); err != nil || p.lock == nil {
			return false
		}
	}
	cmd := r.command(in)
	cmd.Lock = p.lock
	started, err := cmd.Prestart()
	if err != nil {
		return false
	}
	r.opts.Observer.Running(1)
	p.waiting = append(p.waiting, started)
	return true
}

// prestarted are the processes that were started ahead of the calls on one interface. These
// calls share the lock of the container ID, whether they use a process or start their own.
type prestarted struct {
	lock    *process.IDLock
	waiting []*process.Process
}

// prestartedOf returns the prestarted processes of an interface; nil if there are none.
func (r *Runner) prestartedOf(of containerInterface) *prestarted {
	p, _ := r.prestarted.Load(of)
	found, _ := p.(*prestarted)
	return found
}

// takePrestarted returns the process that was prestarted as cmd would be started, and has sent it its
// configuration; nil if there is none.
func (r *Runner) takePrestarted(of containerInterface, cmd process.Command, config []byte) *process.Process {
	p := r.prestartedOf(of)
	if p == nil {
		return nil
	}
	i := slices.IndexFunc(p.waiting, func(w *process.Process) bool { return w.RunsLike(cmd) })
	if i < 0 || !p.waiting[i].SendConfig(config) {
		return nil
	}
	started := p.waiting[i]
	p.waiting = slices.Delete(p.waiting, i, i+1)
	return started
}
