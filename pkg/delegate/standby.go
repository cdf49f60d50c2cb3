package delegate

import (
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/delegated-ipam/delegated-ipam/pkg/delegate/call"
	"github.com/delegated-ipam/delegated-ipam/pkg/failpoint"
)

// Most of the time that a plugin call takes is the start of its process. A plugin
// that does nothing before it has read its configuration can be started before its
// call: while the journal is written that must be durable before the plugin acts, or
// while the call before it runs. Then it stands by (docs/how-it-works.md, Running a
// plugin, "Standing by").

// maxTold is the longest configuration that is told to a process that stands by, in
// bytes: as much as a pipe always takes at once (pipe(7), PIPE_BUF).
const maxTold = 4 << 10

// Prestart starts the processes of calls that come next, in their order, up to the first
// that cannot be. All work on one container ID; for others it starts none. forget ends
// those that were not called for.
func (r *Runner) Prestart(calls ...call.Upcoming) (forget func()) {
	if len(calls) == 0 {
		return func() {}
	}
	containerID := calls[0].Call.ContainerID
	e := &expectation{}
	for _, c := range calls {
		if c.Call.ContainerID != containerID || !r.standBy(e, c) {
			break
		}
	}
	if e.lock == nil {
		return func() {}
	}
	r.expected.put(containerID, e)
	return func() {
		r.expected.drop(containerID)
		for _, l := range e.waiting {
			l.discard()
			r.opts.Observer.Running(-1)
		}
		e.lock.release()
	}
}

// standBy starts the process of one call. It tells whether it stands by.
func (r *Runner) standBy(e *expectation, c call.Upcoming) bool {
	x := r.execution(c.Verb, c.Call)
	if !c.CanPrestart() || x.ephemeral || x.runner.netns.refuse(x.netns) != nil {
		return false
	}
	args, stdin, err := x.prepare(&c.Call)
	if err != nil || len(stdin) > maxTold || !r.isELF(c.Call.Invocation.Binary) {
		return false
	}
	if e.lock == nil {
		lock, ours, err := r.locks.tryTake(x.containerID)
		if err != nil {
			return false
		}
		if !ours { // whoever has it is waited for by the call
			lock.file.Close()
			return false
		}
		e.lock = lock
	}
	p := r.program(c.Call.Invocation.Binary, x.environment(c.Call, args).list())
	p.works, p.standsBy, p.files = true, true, []*os.File{e.lock.file}
	l, err := p.launch()
	if err != nil { // the call says why
		return false
	}
	r.opts.Observer.Running(1)
	e.waiting = append(e.waiting, l)
	return true
}

// expectation is what stands by for one container ID. The lock on the ID is that of
// all its calls until it is forgotten, whether they found a process or not.
type expectation struct {
	lock    *idLock
	waiting []launched
}

// claim returns the process that stands by for a call, which has been told its
// configuration, if there is one. It was started with what the call would start.
func (e *expectation) claim(p program, config []byte) (l launched, ok bool) {
	i := slices.IndexFunc(e.waiting, func(l launched) bool { return l.path == p.path && slices.Equal(l.env, p.env) })
	if i < 0 || len(config) > maxTold || !e.waiting[i].configure(config) {
		return launched{}, false
	}
	l = e.waiting[i]
	e.waiting = slices.Delete(e.waiting, i, i+1)
	return l, true
}

// configure gives a process that stands by its configuration. It tells whether the process
// was still there.
func (l *launched) configure(config []byte) bool {
	if (&watch{process: l.child}).hasEnded() {
		return false
	}
	l.reach(failpoint.PluginTelling)
	n, err := unix.Write(l.input, config)
	whole := err == nil && n == len(config)
	if whole { // else discard ends it, before it can take a part for the whole
		_ = unix.Close(l.input)
		l.input = none
	}
	l.reach(failpoint.PluginTold)
	return whole
}

// discard ends a process that was not called for. It has no configuration, so it has
// done nothing.
func (l launched) discard() {
	w := &watch{process: l.child, streams: [2]*capture{l.out, l.errs}}
	group := processGroup(l.child.pid)
	_ = group.signal(unix.SIGKILL)
	for ended := false; !ended; {
		ended, _ = w.until(time.Now().Add(long))
	}
	_, _ = l.child.reap()
	group.gone(burial) // a script has children, too
	_ = unix.Close(l.input)
	l.out.stop()
	l.errs.stop()
}

// expectations are those of all container IDs.
type expectations struct {
	mu   sync.Mutex
	byID map[string]*expectation
}

// of is that of a container ID; nil for none.
func (all *expectations) of(containerID string) *expectation {
	all.mu.Lock()
	defer all.mu.Unlock()
	return all.byID[containerID]
}

func (all *expectations) put(containerID string, e *expectation) {
	all.mu.Lock()
	defer all.mu.Unlock()
	all.byID[containerID] = e
}

func (all *expectations) drop(containerID string) {
	all.mu.Lock()
	defer all.mu.Unlock()
	delete(all.byID, containerID)
}
