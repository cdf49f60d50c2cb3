package bridge

import (
	"cmp"
	"context"
	"errors"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/delegated-ipam/delegated-ipam/internal/bridge/planner"
	"github.com/delegated-ipam/delegated-ipam/internal/kube"
	"github.com/delegated-ipam/delegated-ipam/internal/logging"
	"github.com/delegated-ipam/delegated-ipam/internal/nodeevents"
	"github.com/delegated-ipam/delegated-ipam/internal/options"
)

// drainDelay is --excess-ip-release-delay of the tests.
const drainDelay = 3 * time.Minute

func ip(n int) netip.Addr { return netip.AddrFrom4([4]byte{10, 0, byte(n >> 8), byte(n)}) }

// defaultSettings are the defaults of the flags.
func defaultSettings() planner.Settings {
	o, _ := options.NewBridge(nil)
	return Settings(*o)
}

func smallSettings() planner.Settings {
	return planner.Settings{MinAllocate: 3, PreAllocate: 1, ReleaseExcess: true}
}

// fixture is a daemon, an API server and an agent in memory. It implements nodeClient
// (fakenode_test.go), slotAllocator (fakeallocator_test.go) and nodeevents.Recorder. It is used
// under testing/synctest only.
type fixture struct {
	mu sync.Mutex
	fakeNode
	fakeAllocator
	events []string
	// pods is the number of pods of the watch, if watchesPods.
	pods        int
	watchesPods bool
	// podIPs are the addresses of these pods; podsPending reports whether they are not listed yet.
	podIPs      map[netip.Addr]bool
	podsPending bool
	// allocatable is the number of pods that the node can have, or allocatableErr the result of its read.
	allocatable    int
	allocatableErr error
	// publishedUnheld are the addresses that were published while they were not held.
	publishedUnheld []string
}

func newFixture() *fixture {
	f := &fixture{podIPs: map[netip.Addr]bool{}}
	f.held, f.capacity, f.unrestorable, f.unreleasable = map[int]netip.Addr{}, 250, map[netip.Addr]bool{}, map[netip.Addr]bool{}
	f.create("uid-1")
	return f
}

// readAllocatable is controller.allocatablePods.
func (f *fixture) readAllocatable(context.Context) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.allocatable, f.allocatableErr
}

func (f *fixture) nodePods() nodePods {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.podsPending {
		return nodePods{pending: true}
	}
	return nodePods{count: f.pods, ips: f.podIPs}
}

// update changes the fixture as another client would, and wakes the bridge.
func (f *fixture) update(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
	f.changed()
}

func (f *fixture) count(counter *int) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return *counter
}

func (f *fixture) Event(_ runtime.Object, _, reason, _ string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.events = append(f.events, reason)
}

func (f *fixture) eventReasons() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Sorted(slices.Values(f.events))
}

// between checks a count or a duration.
func between[N cmp.Ordered](t *testing.T, what string, got, least, most N) {
	t.Helper()
	if got < least || got > most {
		t.Errorf("%v %s; want %v to %v", got, what, least, most)
	}
}

// runController runs a controller on the fixture, in simulated time, while test runs.
func runController(t *testing.T, f *fixture, s planner.Settings, test func(t *testing.T, m *metrics)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		m := newMetrics()
		log := logging.Discard()
		c := &controller{
			log: log, node: f, allocator: f, pods: f.nodePods, settings: s, state: newState(drainDelay),
			problems: nodeevents.New(log, f, "worker"), metrics: m, loop: kube.NewLoop(),
		}
		if f.allocatable > 0 {
			c.allocatablePods = f.readAllocatable
		}
		m.cause = c.problems.String
		f.mu.Lock()
		f.wake = c.wake
		f.mu.Unlock()
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { c.run(ctx) })
		synctest.Wait()
		test(t, m)
		cancel()
		running.Wait()
	})
}

func advance(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// hold makes the daemon hold, and the CiliumNode publish, this many slots.
func (f *fixture) hold(slots int) {
	for n := range slots {
		f.held[n] = ip(n + 1)
		f.node.Spec.IPAM.Pool[ip(n+1).String()] = planner.EntryOf(n, false)
	}
}

func errAway() error { return fail(reasonDaemonUnavailable, errors.New("away")) }
