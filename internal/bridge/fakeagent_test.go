package bridge

import (
	"context"
	"sync"
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/bridge/planner"
	"github.com/delegated-ipam/delegated-ipam/internal/testing/crdagent"
)

// fakeAgent imitates an agent that allocates addresses of the pool immediately and writes its used
// addresses once in an interval, and a kubelet that repeats each ADD until it succeeds.
type fakeAgent struct {
	f   *fixture
	ctx context.Context
	// end stops the agent.
	end func()
	// work counts its goroutines.
	work sync.WaitGroup
	// allocated are the owners of addresses. It is guarded by the fixture's lock, as the following.
	allocated map[string]string
	// started is how long each pod waited for its address; failures are the times of failed ADDs since
	// the start.
	started, failures []time.Duration
	start             time.Time
}

// startAgent starts an agent that takes the three addresses for itself.
func startAgent(ctx context.Context, f *fixture, interval time.Duration) *fakeAgent {
	a := &fakeAgent{f: f, allocated: map[string]string{}, start: time.Now()}
	a.ctx, a.end = context.WithCancel(ctx)
	for _, owner := range []string{"router", "health", "ingress"} {
		a.allocate(owner)
	}
	a.work.Go(func() {
		for sleep(a.ctx, interval); a.ctx.Err() == nil; sleep(a.ctx, interval) {
			a.writeStatus()
		}
	})
	return a
}

// stop stops the agent and waits for its end.
func (a *fakeAgent) stop() {
	a.end()
	a.work.Wait()
}

func (a *fakeAgent) writeStatus() {
	a.f.mu.Lock()
	defer a.f.mu.Unlock()
	used := map[string]planner.Entry{}
	same := len(a.allocated) == len(a.f.node.Status.IPAM.Used)
	for ip, owner := range a.allocated {
		used[ip] = planner.Entry{Owner: owner, Resource: a.f.node.Spec.IPAM.Pool[ip].Resource}
		same = same && a.f.node.Status.IPAM.Used[ip] == used[ip]
	}
	if !same {
		a.f.node.Status.IPAM.Used = used
		a.f.changed()
	}
}

// allocate allocates any free address, and returns it; empty for none.
func (a *fakeAgent) allocate(owner string) string {
	a.f.mu.Lock()
	defer a.f.mu.Unlock()
	for ip, e := range a.f.node.Spec.IPAM.Pool {
		if a.allocated[ip] == "" && e.Owner == "" && crdagent.Allocatable(a.f.node.Status.IPAM.ReleaseIPs[ip]) {
			a.allocated[ip] = owner
			return ip
		}
	}
	return ""
}

// addPod binds a pod to the node. Its ADD follows after 200 ms and is repeated after 1 s, 2 s, 4 s, … It
// ends after its life; 0 is never.
func (a *fakeAgent) addPod(life time.Duration) {
	a.f.changePods(1)
	bound := time.Now()
	a.work.Go(func() {
		wait, address := time.Second, ""
		for sleep(a.ctx, 200*time.Millisecond); a.ctx.Err() == nil; sleep(a.ctx, wait) {
			if address = a.allocate("default/pod"); address != "" {
				break
			}
			a.f.mu.Lock()
			a.failures = append(a.failures, time.Since(a.start))
			a.f.mu.Unlock()
			wait *= 2
		}
		a.f.mu.Lock()
		a.started = append(a.started, time.Since(bound))
		a.f.mu.Unlock()
		if life > 0 {
			sleep(a.ctx, life)
			a.f.mu.Lock()
			delete(a.allocated, address)
			a.f.mu.Unlock()
			a.f.changePods(-1)
		}
	})
}

func (f *fixture) changePods(by int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.watchesPods {
		f.pods += by
		f.signal()
	}
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
