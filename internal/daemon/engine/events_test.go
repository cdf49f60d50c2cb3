package engine

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/daemon/attachment"
)

// fakeObserver records events and waits.
type fakeObserver struct {
	mu     sync.Mutex
	events []string
	waits  []string
}

func (o *fakeObserver) Happened(e Event) {
	if e.Kind != Done {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.events = append(o.events, fmt.Sprintf("%s %s %s %v", e.Action, e.Outcome, e.Pool, e.Families))
}

func (o *fakeObserver) QueueWait(w Queue, d time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.waits = append(o.waits, fmt.Sprintf("%s %s", w, d))
}

// takeEvents returns the events since the last time.
func (f *fixture) takeEvents() []string {
	synctest.Wait()
	f.observer.mu.Lock()
	defer f.observer.mu.Unlock()
	defer func() { f.observer.events = nil }()
	return f.observer.events
}

func (f *fixture) wantEvents(want ...string) {
	f.t.Helper()
	if got := f.takeEvents(); !slices.Equal(got, want) {
		f.t.Errorf("events %q; want %q", got, want)
	}
}

func (f *fixture) wantWaits(want ...string) {
	f.t.Helper()
	f.observer.mu.Lock()
	defer f.observer.mu.Unlock()
	for _, w := range want {
		if !slices.Contains(f.observer.waits, w) {
			f.t.Errorf("waits %q; want %q among them", f.observer.waits, w)
		}
	}
}

func TestEvents(t *testing.T) {
	ipv4 := AllocateRequest{Owner: "router", Family: attachment.IPv4}
	unknownPool := AllocateRequest{Owner: "router", Family: attachment.IPv4, Pool: "red"}
	allocated := func(f *fixture) { f.allocate("router") }
	releasedIPv6 := func(f *fixture) { f.allocate("router"); f.release("fd00::1") }
	failedDEL := func(f *fixture) {
		f.inject(always(refused, "DEL"))
		_ = f.tryRelease("10.0.0.1")
		time.Sleep(minRetryDelay * 3 / 2)
		f.inject(nil)
		time.Sleep(maxRetryDelay)
	}
	refusedADD := func(f *fixture) { f.inject(always(refused, "ADD")); _ = f.try(ipv4) }
	for name, c := range map[string]struct {
		setup      setup
		before, do func(*fixture)
		want       []string
	}{
		"allocate, both families": {nil, nil, allocated, []string{"allocate success default [ipv4 ipv6]"}},
		"allocate, refused":       {nil, nil, refusedADD, []string{"allocate failed default [ipv4]"}},
		"allocate, unknown pool": {
			nil, nil, func(f *fixture) { _ = f.try(unknownPool) },
			[]string{"allocate rejected red [ipv4]"},
		},
		"restore, address of another owner": {
			nil, allocated, func(f *fixture) { _ = f.tryRestore("health", "10.0.0.1") },
			[]string{"restore rejected default [ipv4]"},
		},
		"release, then of an unknown address": {
			nil, allocated, func(f *fixture) { _, _ = f.tryRelease("10.0.0.1"), f.tryRelease("10.0.0.9") },
			[]string{"release success default [ipv4]", "release rejected default [ipv4]"},
		},
		"release, failed and retried": {
			nil, releasedIPv6, failedDEL,
			[]string{"release failed default [ipv4]", "cleanup failed default [ipv4 ipv6]", "cleanup success default [ipv4 ipv6]"},
		},
		"release with a delay": {
			releaseDelay(time.Hour), releasedIPv6, func(f *fixture) { f.release("10.0.0.1"); time.Sleep(2 * time.Hour) },
			[]string{"release success default [ipv4]", "cleanup success default [ipv4 ipv6]"},
		},
		"expiration": {
			nil, nil, func(f *fixture) { f.allocateExpiring("router"); time.Sleep(time.Hour) },
			[]string{"allocate success default [ipv4 ipv6]", "expire success default [ipv4 ipv6]"},
		},
		"verified after a start": {nil, allocated, func(f *fixture) { f.restart() }, nil},
		"reacquired": {
			nil, allocated, func(f *fixture) { f.clearStore(); f.restart() },
			[]string{"reacquire success default [ipv4 ipv6]"},
		},
		"lost": {
			withProfile(checked()), allocated, func(f *fixture) { f.clearStore(); f.restart() },
			[]string{"reacquire failed default [ipv4 ipv6]"},
		},
		"retired": {
			nil, allocated, func(f *fixture) { f.restart(retireOwners, onlyOwner("health")) },
			[]string{"retire success default [ipv4 ipv6]"},
		},
	} {
		run(t, name, with(c.setup), func(f *fixture) {
			if c.before != nil {
				c.before(f)
			}
			f.takeEvents()
			c.do(f)
			f.wantEvents(c.want...)
		})
	}
}

func TestWaits(t *testing.T) {
	run(t, "counted and measured", with(gatedAdd, maxProcesses(1)), func(f *fixture) {
		var results []chan error
		for _, owner := range []string{"router", "router", "health"} {
			result, _ := f.startAllocate(AllocateRequest{Owner: owner})
			results = append(results, result)
		}
		if q := f.QueueLengths(); q[QueueEntry] != 1 || q[QueueProcess] != 1 || q[QueueBackground] != 0 {
			f.t.Errorf("queue lengths %v; want one for the entry and one for a process", q)
		}
		time.Sleep(time.Second)
		close(f.node.addGate)
		for _, result := range results {
			if err := <-result; err != nil {
				f.t.Error(err)
			}
		}
		if q := f.QueueLengths(); q[QueueEntry] != 0 || q[QueueProcess] != 0 {
			f.t.Errorf("queue lengths at the end %v; want none", q)
		}
		f.wantWaits("attachment 1s", "process 1s", "attachment 0s", "process 0s")
	})
	for name, c := range map[string]struct {
		owner  string
		leaves bool // the client leaves; otherwise the budget is spent
		want   string
	}{
		"client leaves, process":    {"late", true, "process 1s"},
		"client leaves, attachment": {"router", true, "attachment 1s"},
		"budget spent, process":     {"late", false, "process 1m20s"},
		"budget spent, attachment":  {"router", false, "attachment 1m20s"},
	} {
		run(t, name, with(gatedAdd, maxProcesses(1)), func(f *fixture) {
			f.startAllocate(AllocateRequest{Owner: "router"})
			time.Sleep(time.Hour) // its budget is spent, and its work continues
			f.takeEvents()
			result, leave := f.startAllocate(AllocateRequest{Owner: c.owner, Family: attachment.IPv4})
			time.Sleep(time.Second)
			if c.leaves {
				leave()
			}
			f.wantError(<-result, attachment.Busy)
			f.wantEvents("allocate rejected default [ipv4]")
			f.wantWaits(c.want)
			close(f.node.addGate)
			synctest.Wait()
		})
	}
}
