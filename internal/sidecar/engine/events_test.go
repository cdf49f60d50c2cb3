package engine

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/engine/protocol"
	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/journal/record"
)

// fakeObserver records events and waits.
type fakeObserver struct {
	mu     sync.Mutex
	events []string
	waits  []string
}

func (o *fakeObserver) ActionDone(e Event) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.events = append(o.events, fmt.Sprintf("%s %s %s %v", e.Action, e.Outcome, e.Pool, e.Families))
}

func (o *fakeObserver) QueueWait(w Queue, d time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.waits = append(o.waits, fmt.Sprintf("%s %s", w, d))
}

// take returns the events since the last time.
func (o *fakeObserver) take() []string {
	synctest.Wait()
	o.mu.Lock()
	defer o.mu.Unlock()
	defer func() { o.events = nil }()
	return o.events
}

func (o *fakeObserver) wantEvents(t *testing.T, want ...string) {
	t.Helper()
	if got := o.take(); !slices.Equal(got, want) {
		t.Errorf("events %q; want %q", got, want)
	}
}

func (o *fakeObserver) wantWaits(t *testing.T, want ...string) {
	t.Helper()
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, w := range want {
		if !slices.Contains(o.waits, w) {
			t.Errorf("waits %q; want %q among them", o.waits, w)
		}
	}
}

func TestEvents(t *testing.T) {
	ipv4 := AllocateRequest{Owner: "router", Family: record.IPv4}
	allocated := func(f *fixture) { f.allocate("router") }
	releasedIPv6 := func(f *fixture) { f.allocate("router"); f.release("fd00::1") }
	for name, c := range map[string]struct {
		setup  setup
		before func(*fixture)
		do     func(*fixture)
		want   []string
	}{
		"allocate, both families": {
			do:   func(f *fixture) { f.allocate("router") },
			want: []string{"allocate success default [ipv4 ipv6]"},
		},
		"allocate, refused by the plugin": {
			do:   func(f *fixture) { f.inject(always(refused, "ADD")); _ = f.tryAllocateWith(ipv4) },
			want: []string{"allocate failed default [ipv4]"},
		},
		"allocate, owner not served": {
			setup: onlyOwner("health"),
			do:    func(f *fixture) { _ = f.tryAllocateWith(ipv4) },
			want:  []string{"allocate rejected default [ipv4]"},
		},
		"allocate, family disabled": {
			setup: ipv6Disabled,
			do:    func(f *fixture) { _ = f.tryAllocateWith(AllocateRequest{Owner: "router", Family: record.IPv6}) },
			want:  []string{"allocate rejected default [ipv6]"},
		},
		"allocate, unknown pool": {
			do: func(f *fixture) {
				_ = f.tryAllocateWith(AllocateRequest{Owner: "router", Family: record.IPv4, Pool: "red"})
			},
			want: []string{"allocate rejected red [ipv4]"},
		},
		"restore, address of another owner": {
			before: allocated,
			do:     func(f *fixture) { _ = f.tryRestore("health", "10.0.0.1") },
			want:   []string{"restore rejected default [ipv4]"},
		},
		"release, then of an unknown address": {
			before: allocated,
			do:     func(f *fixture) { _, _ = f.tryRelease("10.0.0.1"), f.tryRelease("10.0.0.9") },
			want:   []string{"release success default [ipv4]", "release rejected default [ipv4]"},
		},
		"release, failed and retried": {
			before: releasedIPv6,
			do: func(f *fixture) {
				f.inject(always(refused, "DEL"))
				_ = f.tryRelease("10.0.0.1")
				time.Sleep(minRetryDelay * 3 / 2)
				f.inject(nil)
				time.Sleep(maxRetryDelay)
			},
			want: []string{"release failed default [ipv4]", "cleanup failed default [ipv4 ipv6]", "cleanup success default [ipv4 ipv6]"},
		},
		"release with a delay": {
			setup:  releaseDelay(time.Hour),
			before: releasedIPv6,
			do:     func(f *fixture) { f.release("10.0.0.1"); time.Sleep(2 * time.Hour) },
			want:   []string{"release success default [ipv4]", "cleanup success default [ipv4 ipv6]"},
		},
		"expiration": {
			do:   func(f *fixture) { f.allocateExpiring("router"); time.Sleep(time.Hour) },
			want: []string{"allocate success default [ipv4 ipv6]", "expire success default [ipv4 ipv6]"},
		},
	} {
		run(t, name, func(t *testing.T) {
			o := &fakeObserver{}
			f := newFixture(t, observer(o), c.setup)
			if c.before != nil {
				c.before(f)
			}
			o.take()
			c.do(f)
			o.wantEvents(t, c.want...)
		})
	}
}

func TestEventsAfterStart(t *testing.T) {
	for name, c := range map[string]struct {
		setup   setup
		lost    bool
		restart []setup
		want    []string
	}{
		"verified":   {},
		"reacquired": {lost: true, want: []string{"reacquire success default [ipv4 ipv6]"}},
		"lost": {
			setup: withProfile(checked()),
			lost:  true, want: []string{"reacquire failed default [ipv4 ipv6]"},
		},
		"retired": {
			restart: []setup{retireOwners, onlyOwner("health")},
			want:    []string{"retire success default [ipv4 ipv6]"},
		},
	} {
		run(t, name, func(t *testing.T) {
			f := newFixture(t, c.setup)
			f.allocate("router")
			if c.lost {
				f.clearStore()
			}
			o := &fakeObserver{}
			f.restart(append(c.restart, observer(o))...)
			o.wantEvents(t, c.want...)
		})
	}
}

func TestWaits(t *testing.T) {
	run(t, "counted and measured", func(t *testing.T) {
		o := &fakeObserver{}
		f := newFixture(t, gatedAdd, maxProcesses(1), observer(o))
		var results []chan error
		for _, owner := range []string{"router", "router", "health"} {
			result, _ := f.startAllocate(AllocateRequest{Owner: owner})
			results = append(results, result)
		}
		if q := f.QueueLengths(); q[QueueEntry] != 1 || q[QueueProcess] != 1 || q[QueueBackground] != 0 {
			t.Errorf("queue lengths %v; want one for the entry and one for a process", q)
		}
		time.Sleep(time.Second)
		close(f.node.addGate)
		for _, result := range results {
			if err := <-result; err != nil {
				t.Error(err)
			}
		}
		if q := f.QueueLengths(); q[QueueEntry] != 0 || q[QueueProcess] != 0 {
			t.Errorf("queue lengths at the end %v; want none", q)
		}
		o.wantWaits(t, "attachment 1s", "process 1s", "attachment 0s", "process 0s")
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
		run(t, name, func(t *testing.T) {
			o := &fakeObserver{}
			f := newFixture(t, gatedAdd, maxProcesses(1), observer(o))
			f.startAllocate(AllocateRequest{Owner: "router"})
			time.Sleep(time.Hour) // its budget is spent, and its work continues
			o.take()
			result, leave := f.startAllocate(AllocateRequest{Owner: c.owner, Family: record.IPv4})
			time.Sleep(time.Second)
			if c.leaves {
				leave()
			}
			f.wantError(<-result, protocol.Busy)
			o.wantEvents(t, "allocate rejected default [ipv4]")
			o.wantWaits(t, c.want)
			close(f.node.addGate)
			synctest.Wait()
		})
	}
}
