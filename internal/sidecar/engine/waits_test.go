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
	run(t, "full queue", func(t *testing.T) {
		f := newFixture(t, gatedAdd, maxQueued(1))
		f.startAllocate(AllocateRequest{Owner: "a"})
		err := f.tryAllocate("b")
		f.wantError(err, protocol.Busy, "--max-queued-requests")
		if e := err.(*protocol.Error); e.RetryAfter <= 0 {
			t.Error("the error has no RetryAfter")
		}
		f.openGate()
	})
	run(t, "held addresses need no queue slot", func(t *testing.T) {
		f := newFixture(t, gatedAdd, maxQueued(1), verifyInterval(time.Hour))
		f.startAllocate(AllocateRequest{Owner: "router"})
		f.openGate()
		f.startAllocate(AllocateRequest{Owner: "a"})
		for range 2 {
			if got := f.allocate("router"); !got.Holds(addr("10.0.0.1")) {
				t.Errorf("router gets %v", got.Addrs())
			}
		}
		f.wantHeld("router", "10.0.0.1")
		f.openGate()
		for _, owner := range []string{"b", "c", "d"} { // each slot is released, once
			f.startAllocate(AllocateRequest{Owner: owner})
			f.openGate()
			if _, ok := f.Lookup(client.DefaultPool, owner); !ok {
				t.Errorf("%s was rejected by an empty queue", owner)
			}
		}
	})
}

// freeProcesses returns how many more plugin processes may run.
func (f *fixture) freeProcesses() int {
	n, processes := 0, f.pools[client.DefaultPool].processes
	for processes.TryAcquire(1) {
		n++
	}
	processes.Release(int64(n))
	return n
}

// recordFreeProcesses records freeProcesses at each plugin call.
func (f *fixture) recordFreeProcesses() *[]int {
	free := &[]int{}
	f.onCall(func(string, call.Call) { *free = append(*free, f.freeProcesses()) })
	return free
}

func TestProcesses(t *testing.T) {
	run(t, "held addresses need no process", func(t *testing.T) {
		f := newFixture(t, gatedAdd, maxProcesses(1), verifyInterval(time.Hour))
		f.startAllocate(AllocateRequest{Owner: "router"})
		f.openGate()
		f.startAllocate(AllocateRequest{Owner: "slow"})
		f.allocate("router")
		f.openGate()
	})
	check := func(f *fixture, free *[]int, want ...int) {
		f.t.Helper()
		synctest.Wait() // an operation may hold its process a moment longer than its client waits
		if !slices.Equal(*free, want) {
			f.t.Errorf("free processes at each call: %v; want %v", *free, want)
		}
		if n := f.freeProcesses(); n != 2 {
			f.t.Errorf("%d free processes at the end; want 2", n)
		}
	}
	run(t, "second one released after the DEL of an allocate", func(t *testing.T) {
		f := newFixture(t, maxProcesses(2))
		free := f.recordFreeProcesses()
		f.allocate("router")
		check(f, free, 0, 1)
	})
	run(t, "second one released after the first DEL of a release", func(t *testing.T) {
		f := newFixture(t, maxProcesses(2))
		f.allocate("router")
		f.addInvocation("router", func(c *call.Invocation) { c.NetNS = "/another" })
		free := f.recordFreeProcesses()
		f.releaseNow("10.0.0.1", "fd00::1")
		check(f, free, 0, 1)
	})
	run(t, "second one released after a failed write", func(t *testing.T) {
		f := newFixture(t, maxProcesses(2))
		f.inject(always(writeFailed, "write adding"))
		free := f.recordFreeProcesses()
		f.wantError(f.tryAllocate("router"), protocol.Failed)
		check(f, free)
	})
	run(t, "no second one for a plugin that does not wait for its configuration", func(t *testing.T) {
		f := newFixture(t, maxProcesses(2), withProfile(hostLocal(), func(p *profile.Profile) { p.WaitsForConfig = false }))
		free := f.recordFreeProcesses()
		f.allocate("router")
		check(f, free, 1, 1)
	})
}

// addInvocation adds the invocation of an earlier ADD, with a change, to an owner's record.
func (f *fixture) addInvocation(owner string, change func(*call.Invocation)) {
	f.t.Helper()
	op := f.lock(owner)
	defer op.unlock()
	earlier := lastInvocationOf(*op.entry.Rec)
	change(&earlier)
	r := op.entry.Rec.Clone()
	r.Invocations = slices.Insert(r.Invocations, 0, earlier)
	if err := op.Write(r); err != nil {
		f.t.Fatal(err)
	}
	op.publish(func(s *protocol.State) { s.Rec = &r })
}

// wantPrestarts compares the calls announced since the last time. They must have been announced
// before any step, and forgotten since.
func (f *fixture) wantPrestarts(want ...string) {
	f.t.Helper()
	f.node.mu.Lock()
	defer f.node.mu.Unlock()
	var got []string
	for _, p := range f.node.prestarts {
		got = append(got, p.calls...)
		if len(p.calls) > 0 && p.stepsBefore != 0 {
			f.t.Errorf("%v were announced after %v", p.calls, f.node.steps[:p.stepsBefore])
		}
	}
	if !slices.Equal(got, want) {
		f.t.Errorf("announced %q; want %q", got, want)
	}
	if f.node.activePrestarts != 0 {
		f.t.Errorf("%d announcements were not forgotten", f.node.activePrestarts)
	}
	f.node.prestarts, f.node.steps = nil, nil
}

// forgetPrestarts makes wantPrestarts begin here.
func (f *fixture) forgetPrestarts() {
	f.node.mu.Lock()
	defer f.node.mu.Unlock()
	f.node.prestarts, f.node.steps = nil, nil
}

func TestPrestart(t *testing.T) {
	id := func(f *fixture) string { return f.get("router").ContainerID }
	run(t, "DEL and ADD of a new owner", func(t *testing.T) {
		f := newFixture(t)
		f.allocate("router")
		f.wantPrestarts("DEL "+id(f), "ADD "+id(f))
	})
	run(t, "held", func(t *testing.T) {
		f := newFixture(t)
		f.allocate("router")
		f.forgetPrestarts()
		f.allocate("router")
		f.wantPrestarts()
	})
	run(t, "DEL of a release", func(t *testing.T) {
		f := newFixture(t)
		f.allocate("router")
		del := "DEL " + id(f)
		f.forgetPrestarts()
		f.release("10.0.0.1")
		f.wantPrestarts() // another claim is left
		f.release("fd00::1")
		f.wantPrestarts(del)
	})
	run(t, "ADD that can be repeated", func(t *testing.T) {
		f := newFixture(t, withProfile(sameAnswer()))
		f.allocate("router")
		f.wantPrestarts("ADD " + id(f))
	})
	run(t, "one call for one process", func(t *testing.T) {
		f := newFixture(t, maxProcesses(1))
		f.allocate("router")
		f.wantPrestarts("DEL " + id(f))
	})
	run(t, "one call in the background", func(t *testing.T) {
		f := newFixture(t)
		f.allocate("router")
		f.clearStore()
		f.forgetPrestarts()
		f.restart()
		if all := f.node.prestarts; len(all) != 1 || len(all[0].calls) != 1 {
			t.Errorf("announced %v; want one call at a time", all)
		}
	})
}
