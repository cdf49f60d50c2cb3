package bridge

import (
	"errors"
	"maps"
	"math"
	"net/netip"
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
		between(t, "slots were acquired", f.count(&f.acquires), 0, 0)
		f.wantEvents(t, "NotPermitted")
		f.update(func() { f.dryRunErr, f.writeErr = nil, nil })
		waitForPool(t, f)
		// A refused read is not a refused write.
		f.update(func() { f.apiErr, f.watchDown = forbidden, true })
		advance(time.Minute)
		dryRuns := f.count(&f.dryRuns)
		f.update(func() { f.apiErr, f.watchDown = nil, false })
		f.setUsed(firstIPs(4)...) // so that a slot is missing
		advance(time.Minute)
		between(t, "checks of the right after a refused read", f.count(&f.dryRuns)-dryRuns, 0, 0)
		// The right is withdrawn.
		f.update(func() { f.dryRunErr, f.writeErr = forbidden, forbidden })
		f.setUsed(firstIPs(6)...)
		advance(time.Minute)
		f.update(func() {
			// Those that were acquired before the refusal; so slots are missing again.
			maps.DeleteFunc(f.held, func(slot int, _ netip.Addr) bool { return slot >= 6 })
			f.acquires = 0
		})
		advance(time.Hour)
		between(t, "slots were acquired after the first refusal", f.count(&f.acquires), 0, 0)
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
		"daemon": {func(f *fixture, err error) { f.daemonErr = err }, errAway(), func(f *fixture) *int { return &f.lists }, "DaemonUnavailable"},
		"write":  {func(f *fixture, err error) { f.writeErr = err }, patchForbidden(), func(f *fixture) *int { return &f.patches }, "NotPermitted"},
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
				between(t, "requests in an hour", f.count(tt.count(f)), want*3/4, want*5/4)
				f.wantEvents(t, tt.reason)
				between(t, "errors are counted", testutil.ToFloat64(m.reconcileErrors.WithLabelValues(tt.reason)), 70, math.Inf(1))
				f.update(func() { tt.set(f, nil) })
				advance(time.Minute)
				f.wantSomePublished(t)
				f.update(func() { tt.set(f, tt.err) })
				f.setUsed(firstIPs(4)...) // so that a slot is missing
				advance(2 * time.Minute)
				f.wantEvents(t, tt.reason, tt.reason)
			})
		})
	}
}

func TestExhausted(t *testing.T) {
	f := newFixture()
	f.capacity = 5
	runController(t, f, planner.Settings{MinAllocate: 8, PreAllocate: 8}, func(t *testing.T, m *metrics) {
		advance(time.Hour)
		f.wantPublished(t, 5)
		// 5 that succeed, then up to 45 s between two.
		between(t, "requests in an hour", f.count(&f.acquires), 80, 150)
		f.wantEvents(t, "PoolExhausted")
		between(t, "exhaustions are counted", testutil.ToFloat64(m.acquisitions.WithLabelValues(outcomeExhausted)), 1, 150)
		f.mu.Lock()
		f.capacity = 100 // another node has released some, which is not an event
		f.mu.Unlock()
		advance(time.Minute)
		f.wantPublished(t, 11)
	})
}

func TestConflicts(t *testing.T) {
	f := newFixture()
	f.conflicts = 3
	runController(t, f, smallSettings(), func(t *testing.T, m *metrics) {
		advance(100 * time.Millisecond)
		f.wantSomePublished(t)
		wantMetric(t, m.conflicts, 3)
		waitForPool(t, f)
		f.update(func() { f.conflicts, f.patches = 1<<30, 0 })
		f.setUsed(firstIPs(4)...)
		advance(time.Hour)
		between(t, "patches in an hour of conflicts", f.count(&f.patches), 1000, 6*900)
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
		f.wantInPool(t, "10.0.0.2", true)
		between(t, "attempts to restore it in an hour", f.count(&f.restores), 80, 150)
		f.wantEvent(t, "AddressNotHeld", true)
		f.setUsed()
		advance(10 * drainDelay)
		f.wantInPool(t, "10.0.0.2", false)
		f.wantInPool(t, "10.0.0.2*", false)
	})
}

func TestRestoreFails(t *testing.T) {
	f := newFixture()
	runController(t, f, smallSettings(), func(t *testing.T, m *metrics) {
		waitForPool(t, f)
		f.update(func() {
			delete(f.held, 1)
			f.requestErr = errAway()
		})
		advance(time.Minute)
		between(t, "failed requests are counted", testutil.ToFloat64(m.acquisitions.WithLabelValues(outcomeFailed)), 1, 100)
		f.wantInPool(t, "10.0.0.2", true)
	})
}

func TestNoProgress(t *testing.T) {
	f := newFixture()
	runController(t, f, smallSettings(), func(t *testing.T, _ *metrics) {
		waitForPool(t, f)
		f.update(func() { f.ignoresAcquire, f.lists = true, 0 })
		f.setUsed(firstIPs(4)...)
		advance(time.Hour)
		between(t, "observations in an hour", f.count(&f.lists), 1000, 3*900)
		f.wantEvent(t, "NoProgress", true)
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
		between(t, "requests in an hour for four slots", f.count(&f.restores), 1, 4*120)
		f.wantEvent(t, "NoProgress", false)
	})
}
