package engine

import (
	"slices"
	"testing"
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/daemon/attachment"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
	"github.com/delegated-ipam/delegated-ipam/pkg/client"
)

func TestQueueSlots(t *testing.T) {
	run(t, "full queue", with(gatedAdd, maxQueued(1)), func(f *fixture) {
		f.startAllocate(AllocateRequest{Owner: "a"})
		err := f.tryAllocate("b")
		f.wantError(err, attachment.Busy, "--max-queued-requests")
		if e := err.(*attachment.Error); e.RetryAfter <= 0 {
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

// An operation has one process from its first call to its end.
func TestProcesses(t *testing.T) {
	for name, c := range map[string]struct {
		before, do func(*fixture)
		calls      int
	}{
		"allocate": {func(*fixture) {}, func(f *fixture) { f.allocate("router") }, 2},
		"release": {
			func(f *fixture) {
				f.allocate("router")
				f.addInvocation("router", func(c *call.Invocation) { c.NetNS = "/another" })
			},
			func(f *fixture) { f.releaseNow("10.0.0.1", "fd00::1") }, 2,
		},
		"failed write": {
			func(f *fixture) { f.inject(always(writeFailed, "write adding")) },
			func(f *fixture) { f.wantError(f.tryAllocate("router"), attachment.Failed) }, 0,
		},
	} {
		run(t, name, with(maxProcesses(3)), func(f *fixture) {
			c.before(f)
			var free []int
			f.onCall(func(string, call.Call) { free = append(free, f.freeProcesses()) })
			c.do(f)
			if n := f.freeProcesses(); !slices.Equal(free, slices.Repeat([]int{2}, c.calls)) || n != 3 {
				f.t.Errorf("free processes at each call: %v; want 2 at each of %d; at the end %d; want 3", free, c.calls, n)
			}
		})
	}
}

// addInvocation adds the invocation of an earlier ADD, with a change, to an owner's record.
func (f *fixture) addInvocation(owner string, change func(*call.Invocation)) {
	f.t.Helper()
	op := f.lock(owner)
	defer op.end()
	earlier := op.entry.LastInvocation()
	change(&earlier)
	r := op.entry.Rec.Clone()
	r.Invocations = slices.Insert(r.Invocations, 0, earlier)
	if err := (world{op}).Write(r); err != nil {
		f.t.Fatal(err)
	}
	op.publish(func(s *attachment.Status) { s.Rec = &r })
}
