package bridge

import (
	"context"
	"io"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sirupsen/logrus"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/delegated-ipam/delegated-ipam/pkg/bridge/conditions"
	"github.com/delegated-ipam/delegated-ipam/pkg/bridge/planner"
)

// drainDelay is --excess-ip-release-delay of the tests.
const drainDelay = 3 * time.Minute

func ip(n int) netip.Addr { return netip.AddrFrom4([4]byte{10, 0, 0, byte(n)}) }

// smallSettings keep the pool small.
func smallSettings() planner.Settings {
	return planner.Settings{MinAllocate: 3, PreAllocate: 1, ReleaseExcess: true}
}

func discardLog() *logrus.Logger {
	log := logrus.New()
	log.SetOutput(io.Discard)
	return log
}

// fixture is a sidecar, an API server and an agent in memory. It implements nodeClient
// (fakenode_test.go), slotAllocator (fakeallocator_test.go) and conditions.Recorder. It is used
// under testing/synctest only.
type fixture struct {
	mu sync.Mutex
	fakeNode
	fakeAllocator
	events []string
	// publishedUnheld are the addresses that were published while they were not held.
	publishedUnheld []string
}

func newFixture() *fixture {
	f := &fixture{}
	f.wake = make(chan struct{}, 1)
	f.held, f.capacity, f.unrestorable = map[int]netip.Addr{}, 100, map[netip.Addr]bool{}
	f.create("uid-1")
	return f
}

// update changes the fixture as another client would, and wakes the bridge.
func (f *fixture) update(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
	f.changed()
}

// count returns one of the fixture's counters.
func (f *fixture) count(counter *int) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return *counter
}

// Event implements conditions.Recorder.
func (f *fixture) Event(_ runtime.Object, _, reason, _ string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.events = append(f.events, reason)
}

// eventReasons returns the reasons of the Events so far.
func (f *fixture) eventReasons() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.events)
}

// runController runs a controller on the fixture, in simulated time, while test runs.
func runController(t *testing.T, f *fixture, s planner.Settings, test func(t *testing.T, m *metrics)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		m := newMetrics()
		// A channel from outside the bubble does not wake anything inside it.
		wake := make(chan struct{}, 1)
		f.mu.Lock()
		f.wake = wake
		f.mu.Unlock()
		log := discardLog()
		c := &controller{
			log: log, node: f, allocator: f, settings: s, state: newState(drainDelay),
			conditions: conditions.New(log, f, "worker"), metrics: m, wake: wake,
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			c.run(ctx)
		}()
		synctest.Wait()
		test(t, m)
		cancel()
		<-done
	})
}

// advance advances the simulated time.
func advance(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// waitForScaleDown waits until the excess of the first publication is released.
func waitForScaleDown(t *testing.T, f *fixture) {
	t.Helper()
	advance(10 * drainDelay)
	if got, want := f.pool(), []string{"10.0.0.1", "10.0.0.2", "10.0.0.3"}; !slices.Equal(got, want) {
		t.Fatalf("the pool is %v after the scale-down; want %v", got, want)
	}
}
