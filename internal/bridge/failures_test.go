package bridge

import (
	"errors"
	"maps"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/delegated-ipam/delegated-ipam/internal/bridge/ciliumnode"
	"github.com/delegated-ipam/delegated-ipam/internal/bridge/planner"
)

// patchForbidden is an API server's refusal of a write.
func patchForbidden() error {
	return apierrors.NewForbidden(ciliumnode.Resource().GroupResource(), "worker", errors.New("no patch"))
}

func TestWriteAccess(t *testing.T) {
	forbidden := patchForbidden()
	f := newFixture()
	f.dryRunErr, f.writeErr = forbidden, forbidden
	runController(t, f, smallSettings(), func(t *testing.T, _ *metrics) {
		advance(time.Hour)
		if n := f.count(&f.acquires); n > 0 {
			t.Errorf("%d slots were acquired", n)
		}
		if got := f.eventReasons(); !slices.Equal(got, []string{"NotPermitted"}) {
			t.Errorf("the Events are %v; want NotPermitted once", got)
		}
		f.update(func() { f.dryRunErr, f.writeErr = nil, nil })
		waitForPool(t, f)
		// A refused read is not a refused write.
		f.update(func() { f.apiErr, f.watchDown = forbidden, true })
		advance(time.Minute)
		dryRuns := f.count(&f.dryRuns)
		f.update(func() { f.apiErr, f.watchDown = nil, false })
		f.setUsed(ip(1), ip(2), ip(3), ip(4)) // so that a slot is missing
		advance(time.Minute)
		if n := f.count(&f.dryRuns) - dryRuns; n > 0 {
			t.Errorf("the right is checked %d times after a refused read", n)
		}
		// The right is withdrawn.
		f.update(func() { f.dryRunErr, f.writeErr = forbidden, forbidden })
		f.setUsed(ip(1), ip(2), ip(3), ip(4), ip(5), ip(6))
		advance(time.Minute)
		f.update(func() {
			// Those that were acquired before the refusal; so slots are missing again.
			maps.DeleteFunc(f.held, func(slot int, _ netip.Addr) bool { return slot >= 6 })
			f.acquires = 0
		})
		advance(time.Hour)
		if n := f.count(&f.acquires); n > 0 {
			t.Errorf("%d slots were acquired after the first refusal", n)
		}
	})
}

func TestRetry(t *testing.T) {
	for name, tt := range map[string]struct {
		set    func(f *fixture, err error)
		err    error
		count  func(f *fixture) *int
		reason string
	}{
		"API server": {
			func(f *fixture, err error) { f.apiErr, f.watchDown = err, err != nil }, errors.New("away"), func(f *fixture) *int { return &f.gets }, "APIServerUnavailable",
		},
		"right to read": {
			func(f *fixture, err error) { f.apiErr, f.watchDown = err, err != nil }, patchForbidden(), func(f *fixture) *int { return &f.gets }, "NotPermitted",
		},
		"sidecar": {func(f *fixture, err error) { f.sidecarErr = err }, sidecarAway(), func(f *fixture) *int { return &f.lists }, "SidecarUnavailable"},
		"write":   {func(f *fixture, err error) { f.writeErr = err }, patchForbidden(), func(f *fixture) *int { return &f.patches }, "NotPermitted"},
		"acquisition": {
			func(f *fixture, err error) { f.requestErr = err }, fail(reasonOwnerNotAdmitted, errors.New("forbidden")),
			func(f *fixture) *int { return &f.acquires }, "OwnerNotAdmitted",
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture()
			tt.set(f, tt.err)
			runController(t, f, smallSettings(), func(t *testing.T, m *metrics) {
				advance(time.Hour)
				// 9 s on average once the delays have grown; events do not shorten them. The watch shows when the API
				// server responds again; without the right to watch, reads are repeated after resync.
				for range 1000 {
					f.update(func() {})
					synctest.Wait()
				}
				want := 400
				switch name {
				case "API server":
					want = 0
				case "right to read":
					want = 120
				}
				if n := f.count(tt.count(f)); n < want*3/4 || n > want*5/4 {
					t.Errorf("%d requests in an hour; want about %d", n, want)
				}
				if got := f.eventReasons(); !slices.Equal(got, []string{tt.reason}) {
					t.Errorf("the Events are %v; want %s once", got, tt.reason)
				}
				if got := testutil.ToFloat64(m.reconcileErrors.WithLabelValues(tt.reason)); got < 70 {
					t.Errorf("%v errors are counted", got)
				}
				f.update(func() { tt.set(f, nil) })
				advance(time.Minute)
				if len(f.pool()) == 0 {
					t.Error("nothing is published after the failure")
				}
				f.update(func() { tt.set(f, tt.err) })
				f.setUsed(ip(1), ip(2), ip(3), ip(4)) // so that a slot is missing
				advance(2 * time.Minute)
				if got := f.eventReasons(); len(got) != 2 {
					t.Errorf("the Events are %v; want a second one for the second failure", got)
				}
			})
		})
	}
}

func TestExhausted(t *testing.T) {
	f := newFixture()
	f.capacity = 5
	runController(t, f, planner.Settings{MinAllocate: 8, PreAllocate: 8}, func(t *testing.T, m *metrics) {
		advance(time.Hour)
		if got := len(f.pool()); got != 5 {
			t.Errorf("%d addresses are published; want the 5 that there are", got)
		}
		// 5 that succeed, then up to 45 s between two.
		if n := f.count(&f.acquires); n < 80 || n > 150 {
			t.Errorf("%d requests in an hour", n)
		}
		if got := f.eventReasons(); !slices.Equal(got, []string{"PoolExhausted"}) {
			t.Errorf("the Events are %v; want PoolExhausted once", got)
		}
		if got := testutil.ToFloat64(m.acquisitions.WithLabelValues(outcomeExhausted)); got == 0 {
			t.Error("no exhaustion is counted")
		}
		f.update(func() { f.capacity = 100 })
		advance(time.Minute)
		if got := len(f.pool()); got != 11 {
			t.Errorf("%d addresses are published a minute after there are more; want 11", got)
		}
	})
}

func TestConflicts(t *testing.T) {
	f := newFixture()
	f.conflicts = 3
	runController(t, f, smallSettings(), func(t *testing.T, m *metrics) {
		advance(100 * time.Millisecond)
		if len(f.pool()) == 0 {
			t.Error("after three conflicts nothing is published without delay")
		}
		if got := testutil.ToFloat64(m.conflicts); got != 3 {
			t.Errorf("%v conflicts are counted; want 3", got)
		}
		waitForPool(t, f)
		f.update(func() { f.conflicts, f.patches = 1<<30, 0 })
		f.setUsed(ip(1), ip(2), ip(3), ip(4))
		advance(time.Hour)
		if n := f.count(&f.patches); n < 1000 || n > 6*900 {
			t.Errorf("%d patches in an hour of conflicts", n)
		}
	})
}

func TestRestoreRefused(t *testing.T) {
	f := newFixture()
	runController(t, f, smallSettings(), func(t *testing.T, _ *metrics) {
		waitForPool(t, f)
		f.setUsed(ip(2))
		advance(time.Minute)
		f.update(func() {
			delete(f.held, 1)
			f.unrestorable[ip(2)], f.restores = true, 0
		})
		advance(time.Hour)
		if !slices.Contains(f.pool(), "10.0.0.2") {
			t.Errorf("a used address has left the pool: %v", f.pool())
		}
		if n := f.count(&f.restores); n < 80 || n > 150 {
			t.Errorf("%d attempts to restore it in an hour", n)
		}
		if !slices.Contains(f.eventReasons(), "AddressNotHeld") {
			t.Errorf("the Events are %v; want AddressNotHeld among them", f.eventReasons())
		}
		f.setUsed()
		advance(10 * drainDelay)
		if slices.Contains(f.pool(), "10.0.0.2") || slices.Contains(f.pool(), "10.0.0.2*") {
			t.Errorf("an address that is neither used nor held is still there: %v", f.pool())
		}
	})
}

func TestRestoreFails(t *testing.T) {
	f := newFixture()
	runController(t, f, smallSettings(), func(t *testing.T, m *metrics) {
		waitForPool(t, f)
		f.update(func() {
			delete(f.held, 1)
			f.requestErr = sidecarAway()
		})
		advance(time.Minute)
		if got := testutil.ToFloat64(m.acquisitions.WithLabelValues(outcomeFailed)); got == 0 {
			t.Error("no failed request is counted")
		}
		if !slices.Contains(f.pool(), "10.0.0.2") {
			t.Errorf("the address has left the pool: %v", f.pool())
		}
	})
}

func TestNoProgress(t *testing.T) {
	f := newFixture()
	runController(t, f, smallSettings(), func(t *testing.T, _ *metrics) {
		waitForPool(t, f)
		f.update(func() { f.ignoresAcquire, f.lists = true, 0 })
		f.setUsed(ip(1), ip(2), ip(3), ip(4))
		advance(time.Hour)
		if n := f.count(&f.lists); n < 1000 || n > 3*900 {
			t.Errorf("%d observations in an hour; want about 2 for each delay", n)
		}
		if !slices.Contains(f.eventReasons(), "NoProgress") {
			t.Errorf("the Events are %v; want NoProgress among them", f.eventReasons())
		}
	})
}

// An address of a further family that cannot be claimed, such as an excluded one, is requested after growing
// delays.
func TestUnclaimedForGood(t *testing.T) {
	f := newFixture()
	excluded := netip.MustParseAddr("fd00::1")
	runController(t, f, smallSettings(), func(t *testing.T, _ *metrics) {
		waitForPool(t, f)
		f.update(func() { f.unclaimed, f.unrestorable[excluded], f.restores = []netip.Addr{excluded}, true, 0 })
		advance(time.Hour)
		if n := f.count(&f.restores); n == 0 || n > 4*120 {
			t.Errorf("%d requests in an hour for four slots; want some, and at most one each half minute", n)
		}
		if slices.Contains(f.eventReasons(), "NoProgress") {
			t.Errorf("the Events are %v; want no NoProgress", f.eventReasons())
		}
	})
}

// Any client that may write the status could make the bridge acquire slots.
func TestInventedUsedAddresses(t *testing.T) {
	for name, owner := range map[string]string{"of pods": "default/pod", "of the agent": "invented"} {
		t.Run(name, func(t *testing.T) {
			f := newFixture()
			f.capacity, f.pods = 1000, 1
			runController(t, f, smallSettings(), func(t *testing.T, _ *metrics) {
				advance(time.Minute)
				f.update(func() {
					for n := range 300 {
						f.node.Status.IPAM.Used[ip(1000+n).String()] = planner.Entry{Owner: owner, Resource: planner.EntryOf(20+n, false).Resource}
					}
				})
				advance(10 * time.Minute)
				// Those of the pod and the agent, these again, and one free slot.
				if held := len(f.held); held > 9 {
					t.Errorf("%d slots are held; want at most 9", held)
				}
				if got := f.eventReasons(); !slices.Equal(got, []string{"AddressNotHeld"}) {
					t.Errorf("the Events are %v; want AddressNotHeld once", got)
				}
			})
		})
	}
}
