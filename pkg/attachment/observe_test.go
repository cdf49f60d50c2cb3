package attachment

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/delegated-ipam/delegated-ipam/pkg/defaults"
	"github.com/delegated-ipam/delegated-ipam/pkg/journal/record"
	"github.com/delegated-ipam/delegated-ipam/pkg/ownermatch"
)

// observed keeps what it is told.
type observed struct {
	mu     sync.Mutex
	events []string
	waits  []string
}

func (o *observed) ActionDone(e Event) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.events = append(o.events, fmt.Sprintf("%s %s %s %v", e.Action, e.Outcome, e.Pool, e.Families))
}

func (o *observed) QueueWait(w Queue, d time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.waits = append(o.waits, fmt.Sprintf("%s %s", w, d))
}

// told returns the events since the last time.
func (o *observed) told() []string {
	synctest.Wait()
	o.mu.Lock()
	defer o.mu.Unlock()
	defer func() { o.events = nil }()
	return o.events
}

func TestTheObserverIsToldWhatHappens(t *testing.T) {
	tests := map[string]struct {
		change func(*Options)
		before func(scene)
		do     func(scene)
		want   []string
	}{
		"an allocation counts for both families": {
			do:   func(s scene) { s.allocate("router") },
			want: []string{"allocate success default [ipv4 ipv6]"},
		},
		"an allocation that the plugin refuses has failed": {
			do: func(s scene) {
				s.failing(always("ADD", refused))
				_, _ = s.ask(AllocateRequest{Owner: "router", Family: record.IPv4})
			},
			want: []string{"allocate failed default [ipv4]"},
		},
		"an owner that is not admitted is refused": {
			change: func(o *Options) { o.Owners, _ = ownermatch.Parse([]string{"health"}) },
			do:     func(s scene) { _, _ = s.ask(AllocateRequest{Owner: "router", Family: record.IPv4}) },
			want:   []string{"allocate rejected default [ipv4]"},
		},
		"a family that is off is refused": {
			change: func(o *Options) { o.EnableIPv6 = false },
			do:     func(s scene) { _, _ = s.ask(AllocateRequest{Owner: "router", Family: record.IPv6}) },
			want:   []string{"allocate rejected default [ipv6]"},
		},
		"a pool that is not known is refused": {
			do:   func(s scene) { _, _ = s.ask(AllocateRequest{Owner: "router", Family: record.IPv4, Pool: "red"}) },
			want: []string{"allocate rejected red [ipv4]"},
		},
		"a restore of another's address is refused": {
			before: func(s scene) { s.allocate("router") },
			do:     func(s scene) { _ = s.claim("health", "10.0.0.1") },
			want:   []string{"restore rejected default [ipv4]"},
		},
		"a release counts for its family, and one of nothing is refused": {
			before: func(s scene) { s.allocate("router") },
			do:     func(s scene) { _, _ = s.giveBack("10.0.0.1"), s.giveBack("10.0.0.9") },
			want:   []string{"release success default [ipv4]", "release rejected default [ipv4]"},
		},
		"a release that fails is tried again until it is given back": {
			before: func(s scene) { s.allocate("router"); _ = s.giveBack("fd00::1") },
			do: func(s scene) {
				s.failing(always("DEL", refused))
				_ = s.giveBack("10.0.0.1")
				time.Sleep(minRetryDelay * 3 / 2)
				s.failing(nil)
				time.Sleep(maxRetryDelay)
			},
			want: []string{"release failed default [ipv4]", "cleanup failed default [ipv4 ipv6]", "cleanup success default [ipv4 ipv6]"},
		},
		"what cools is given back later": {
			change: func(o *Options) { o.ReleaseDelay = time.Hour },
			before: func(s scene) { s.allocate("router"); _ = s.giveBack("fd00::1") },
			do:     func(s scene) { _ = s.giveBack("10.0.0.1"); time.Sleep(2 * time.Hour) },
			want:   []string{"release success default [ipv4]", "cleanup success default [ipv4 ipv6]"},
		},
		"what is not confirmed expires": {
			do: func(s scene) {
				_, _ = s.ask(AllocateRequest{Owner: "router", Expire: true})
				time.Sleep(time.Hour)
			},
			want: []string{"allocate success default [ipv4 ipv6]", "expire success default [ipv4 ipv6]"},
		},
	}
	for name, tt := range tests {
		o := &observed{}
		set := func(opts *Options) {
			opts.Observer = o
			if tt.change != nil {
				tt.change(opts)
			}
		}
		play(t, name, nil, func(s scene) {
			if tt.before != nil {
				tt.before(s)
			}
			o.told()
			tt.do(s)
			if got := o.told(); !slices.Equal(got, tt.want) {
				s.Errorf("it was told %q; want %q", got, tt.want)
			}
		}, set)
	}
}

func TestTheObserverIsToldOfTheRecoveryAfterAStart(t *testing.T) {
	tests := map[string]struct {
		set    func(*fakeNode)
		before func(scene)
		change func(*Options)
		want   []string
	}{
		"what stands is no event": {want: nil},
		"what was lost is reacquired": {
			before: func(s scene) { s.wipe() },
			want:   []string{"reacquire success default [ipv4 ipv6]"},
		},
		"what was lost and cannot be asked for has failed": {
			set:    func(w *fakeNode) { w.profile = known("unknown"); w.profile.Lost.MinCode = 1 },
			before: func(s scene) { s.wipe() },
			want:   []string{"reacquire failed default [ipv4 ipv6]"},
		},
		"an owner that is not admitted any more is retired": {
			change: func(o *Options) { o.RetireOwners, o.Owners = true, ownermatch.Patterns{} },
			want:   []string{"retire success default [ipv4 ipv6]"},
		},
	}
	for name, tt := range tests {
		play(t, name, tt.set, func(s scene) {
			s.allocate("router")
			if tt.before != nil {
				tt.before(s)
			}
			o := &observed{}
			s.again(func(opts *Options) {
				opts.Observer = o
				if tt.change != nil {
					tt.change(opts)
				}
			})
			if got := o.told(); !slices.Equal(got, tt.want) {
				s.Errorf("it was told %q; want %q", got, tt.want)
			}
		})
	}
}

func TestWhoWaitsIsCountedAndMeasured(t *testing.T) {
	o := &observed{}
	play(t, "behind another request of the same owner", func(w *fakeNode) { w.gate = make(chan struct{}) }, func(s scene) {
		var group sync.WaitGroup
		for range 2 {
			group.Go(func() { _, _ = s.Allocate(context.Background(), AllocateRequest{Owner: "router"}) })
		}
		group.Go(func() { _, _ = s.Allocate(context.Background(), AllocateRequest{Owner: "health"}) })
		synctest.Wait()
		if q := s.QueueLengths(); q[QueueEntry] != 1 || q[QueueProcess] != 1 || q[QueueBackground] != 0 {
			s.Errorf("queued: %v; want one for its turn and one for a process", q)
		}
		time.Sleep(time.Second)
		close(s.gate)
		group.Wait()
		if q := s.QueueLengths(); q[QueueEntry] != 0 || q[QueueProcess] != 0 {
			s.Errorf("queued at the end: %v; want nobody", q)
		}
		for _, want := range []string{"attachment 1s", "process 1s", "attachment 0s", "process 0s"} {
			if !slices.Contains(o.waits, want) {
				s.Errorf("it was told %q; want %q among them", o.waits, want)
			}
		}
	}, func(opts *Options) { opts.Observer, opts.MaxProcesses = o, 1 })
}

func TestWhoWaitsInVainIsRefusedAndMeasured(t *testing.T) {
	tests := map[string]struct {
		owner  string
		giveUp func(s scene, hangUp func())
		want   string
	}{
		"a client leaves that waits for a process":           {"late", func(_ scene, hangUp func()) { hangUp() }, "process 1s"},
		"a client leaves that waits for its turn":            {"router", func(_ scene, hangUp func()) { hangUp() }, "attachment 1s"},
		"a budget is spent on the wait for a process":        {"late", func(s scene, _ func()) { time.Sleep(s.opts.Budget - time.Second) }, "process 1m20s"},
		"a budget is spent on the wait for the owner's turn": {"router", func(s scene, _ func()) { time.Sleep(s.opts.Budget - time.Second) }, "attachment 1m20s"},
	}
	for name, tt := range tests {
		o := &observed{}
		play(t, name, func(w *fakeNode) { w.gate = make(chan struct{}) }, func(s scene) {
			var group sync.WaitGroup
			group.Go(func() { _, _ = s.ask(AllocateRequest{Owner: "router"}) })
			synctest.Wait()
			time.Sleep(time.Hour) // the first one's budget is spent, and its work goes on
			o.told()
			ctx, hangUp := context.WithCancel(context.Background())
			defer hangUp()
			group.Go(func() { _, _ = s.Allocate(ctx, AllocateRequest{Owner: tt.owner, Family: record.IPv4}) })
			synctest.Wait()
			time.Sleep(time.Second)
			tt.giveUp(s, hangUp)
			if got, want := o.told(), []string{"allocate rejected default [ipv4]"}; !slices.Equal(got, want) {
				s.Errorf("it was told %q; want %q", got, want)
			}
			if !slices.Contains(o.waits, tt.want) {
				s.Errorf("the waits are %q; want %q among them", o.waits, tt.want)
			}
			close(s.gate)
			group.Wait()
		}, func(opts *Options) { opts.Observer, opts.MaxProcesses = o, 1 })
	}
}

func TestSummaries(t *testing.T) {
	play(t, "count what there is by pool", nil, func(s scene) {
		s.allocate("router")
		s.allocate("health")
		_ = s.giveBack("fd00::2")
		s.failing(always("DEL", refused))
		asked := time.Now()
		_ = s.giveBack("10.0.0.2")
		got := s.Summaries()[defaults.Pool]
		if got.States[record.Held] != 1 || got.States[record.Releasing] != 1 || got.Addresses[record.IPv4] != 1 || got.Addresses[record.IPv6] != 1 || !got.PendingRelease.Equal(asked) {
			s.Errorf("got %+v; want one held with two addresses and one releasing since %s", got, asked)
		}
		if twice := got.Add(got); twice.States[record.Held] != 2 || twice.Addresses[record.IPv4] != 2 || !twice.PendingRelease.Equal(asked) {
			s.Errorf("twice that is %+v", twice)
		}
		if sum := (Summary{}).Add(got); !sum.PendingRelease.Equal(asked) {
			s.Errorf("with nothing that is %+v", sum)
		}
	})
}
