package engine

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/profile"
	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/engine/protocol"
	"github.com/delegated-ipam/delegated-ipam/pkg/client"
)

func TestQueueSlots(t *testing.T) {
	run(t, "full queue", with(gatedAdd, maxQueued(1)), func(f *fixture) {
		f.startAllocate(AllocateRequest{Owner: "a"})
		err := f.tryAllocate("b")
		f.wantError(err, protocol.Busy, "--max-queued-requests")
		if e := err.(*protocol.Error); e.RetryAfter <= 0 {
			f.t.Error("the error has no RetryAfter")
		}
		f.openGate()
	})
	run(t, "held addresses need no queue slot", with(gatedAdd, maxQueued(1), verifyInterval(time.Hour)), func(f *fixture) {
		f.startAllocate(AllocateRequest{Owner: "router"})
		f.openGate()
		f.startAllocate(AllocateRequest{Owner: "a"})
		for range 2 {
			if got := f.allocate("router"); !got.Holds(addr("10.0.0.1")) {
				f.t.Errorf("router gets %v", got.Addrs())
			}
		}
		f.wantHeld("router", "10.0.0.1")
		f.openGate()
		for _, owner := range []string{"b", "c", "d"} { // each slot is released, once
			f.startAllocate(AllocateRequest{Owner: owner})
			f.openGate()
			if _, ok := f.Lookup(client.DefaultPool, owner); !ok {
				f.t.Errorf("%s was rejected by an empty queue", owner)
			}
		}
	})
}

// freeProcesses returns how many more plugin processes may run.
func (f *fixture) freeProcesses() int {
	n, processes := 0, f.pools[client.DefaultPool].processes[ofRuntime][0]
	for processes.TryAcquire(1) {
		n++
	}
	processes.Release(int64(n))
	return n
}

// The second process is released after the first call.
func TestProcesses(t *testing.T) {
	allocate := func(f *fixture) { f.allocate("router") }
	for name, c := range map[string]struct {
		setup      setup
		before, do func(*fixture)
		want       []int // free processes at each call
	}{
		"allocate": {nil, nil, allocate, []int{1, 2}},
		"release": {
			nil, func(f *fixture) {
				f.allocate("router")
				f.addInvocation("router", func(c *call.Invocation) { c.NetNS = "/another" })
			},
			func(f *fixture) { f.releaseNow("10.0.0.1", "fd00::1") },
			[]int{1, 2},
		},
		"failed write": {
			nil, nil, func(f *fixture) {
				f.inject(always(writeFailed, "write adding"))
				f.wantError(f.tryAllocate("router"), protocol.Failed)
			}, nil,
		},
		"no second one for a plugin that does not wait for its configuration": {
			changedProfile(func(p *profile.Profile) { p.WaitsForConfig = false }), nil, allocate, []int{2, 2},
		},
	} {
		run(t, name, with(maxProcesses(3), c.setup), func(f *fixture) {
			if c.before != nil {
				c.before(f)
			}
			var free []int
			f.onCall(func(string, call.Call) { free = append(free, f.freeProcesses()) })
			c.do(f)
			synctest.Wait() // an operation may hold its process a moment longer than its client waits
			if n := f.freeProcesses(); !slices.Equal(free, c.want) || n != 3 {
				f.t.Errorf("free processes at each call: %v; want %v; at the end %d; want 3", free, c.want, n)
			}
		})
	}
}

// addInvocation adds the invocation of an earlier ADD, with a change, to an owner's record.
func (f *fixture) addInvocation(owner string, change func(*call.Invocation)) {
	f.t.Helper()
	op := f.lock(owner)
	defer op.unlock()
	earlier := op.entry.LastInvocation()
	change(&earlier)
	r := op.entry.Rec.Clone()
	r.Invocations = slices.Insert(r.Invocations, 0, earlier)
	if err := op.Write(r); err != nil {
		f.t.Fatal(err)
	}
	op.publish(func(s *protocol.State) { s.Rec = &r })
}

// Calls are announced before any step, and forgotten at the end.
func TestPrestart(t *testing.T) {
	const del, add = "DEL " + routerID, "ADD " + routerID
	allocate := func(f *fixture) { f.allocate("router") }
	for name, c := range map[string]struct {
		setup      setup
		before, do func(*fixture)
		want       []string
	}{
		"new owner":                {nil, nil, allocate, []string{del, add}},
		"held":                     {nil, allocate, allocate, nil},
		"release of one claim":     {nil, allocate, func(f *fixture) { f.release("10.0.0.1") }, nil},
		"release":                  {ipv4Only, allocate, func(f *fixture) { f.release("10.0.0.1") }, []string{del}},
		"ADD that can be repeated": {withProfile(sameAnswer()), nil, allocate, []string{add}},
		"one process":              {maxProcesses(1), nil, allocate, []string{del}},
		"in the background": { // one call at a time
			storeReadable, allocate, func(f *fixture) { f.clearStore(); f.restart() }, []string{del},
		},
	} {
		run(t, name, with(c.setup), func(f *fixture) {
			if c.before != nil {
				c.before(f)
			}
			f.node.with(func(n *fakeNode) { n.prestarts, n.steps = nil, nil })
			c.do(f)
			var got []string
			for _, p := range f.node.prestarts {
				got = append(got, p.calls...)
				if len(p.calls) > 0 && p.stepsBefore != 0 {
					f.t.Errorf("%v were announced after %d steps", p.calls, p.stepsBefore)
				}
			}
			if !slices.Equal(got, c.want) || f.node.activePrestarts != 0 {
				f.t.Errorf("announced %q, %d not forgotten; want %q", got, f.node.activePrestarts, c.want)
			}
		})
	}
}
