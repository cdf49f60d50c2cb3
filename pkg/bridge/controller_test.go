package bridge

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/delegated-ipam/delegated-ipam/pkg/bridge/planner"
)

func away() error { return &reconcileError{reasonSidecarUnavailable, errors.New("away")} }

func TestThePoolIsPublishedAtOnceAndTheExcessGoesBackOneByOne(t *testing.T) {
	w := newWorld()
	play(t, w, few(), func(t *testing.T, m *metrics) {
		if got := w.pool(); !slices.Equal(got, []string{"10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4*"}) {
			t.Errorf("before any time has passed the pool is %v; want router, health, ingress and one more, which is on its way back", got)
		}
		if !m.ready.Load() {
			t.Error("it is not ready although the pool is published")
		}
		rested(t, w)
		if got := testutil.ToFloat64(m.handshakes.WithLabelValues("released")); got != 1 {
			t.Errorf("%v handshakes ended with a release; want 1", got)
		}
		if len(w.held) != 3 {
			t.Errorf("the sidecar holds %v; want 3 slots", w.held)
		}
	})
}

func TestAnAddressRestsBeforeItIsMarked(t *testing.T) {
	const fenced, gone = "10.0.0.4*", "10.0.0.4"
	left := func(w *world) bool {
		return !slices.Contains(w.pool(), fenced) && !slices.Contains(w.pool(), gone)
	}
	t.Run("for the delay and no less", func(t *testing.T) {
		w := newWorld()
		play(t, w, few(), func(t *testing.T, _ *metrics) {
			pass(restDelay - time.Second)
			if left(w) {
				t.Error("it has left before its time")
			}
			pass(2 * time.Second)
			if !left(w) {
				t.Errorf("it has not left: %v", w.pool())
			}
		})
	})
	t.Run("anew if the API server was away", func(t *testing.T) {
		w := newWorld()
		play(t, w, few(), func(t *testing.T, _ *metrics) {
			pass(restDelay / 2)
			w.change(func() { w.apiErr = errors.New("away") })
			pass(restDelay)
			w.change(func() { w.apiErr = nil })
			pass(restDelay - 30*time.Second)
			if left(w) {
				t.Error("time in which the agent could not write has counted")
			}
			pass(2 * restDelay)
			if !left(w) {
				t.Errorf("it has not left: %v", w.pool())
			}
		})
	})
	t.Run("anew if the sidecar was away, and with it the API server", func(t *testing.T) {
		w := newWorld()
		play(t, w, few(), func(t *testing.T, _ *metrics) {
			pass(restDelay / 2)
			// The sidecar is asked first: that the API server is away too is not seen.
			w.change(func() { w.sidecarErr = away() })
			pass(time.Minute)
			w.change(func() { w.apiErr = errors.New("away") })
			pass(restDelay)
			w.change(func() { w.apiErr, w.sidecarErr = nil, nil })
			pass(restDelay - 30*time.Second)
			if left(w) {
				t.Error("time in which the agent could not write has counted")
			}
			pass(2 * restDelay)
			if !left(w) {
				t.Errorf("it has not left: %v", w.pool())
			}
		})
	})
	t.Run("anew if the CiliumNode is another one", func(t *testing.T) {
		w := newWorld()
		play(t, w, few(), func(t *testing.T, _ *metrics) {
			pass(restDelay / 2)
			w.change(func() { w.node.Metadata.UID = "uid-2" })
			pass(restDelay/2 + time.Minute)
			if left(w) {
				t.Error("the rest of an earlier CiliumNode has counted")
			}
		})
	})
	t.Run("and stays if it is used after all", func(t *testing.T) {
		w := newWorld()
		play(t, w, few(), func(t *testing.T, m *metrics) {
			pass(restDelay / 2)
			w.use(ip(4))
			pass(10 * restDelay)
			if !slices.Contains(w.pool(), gone) {
				t.Errorf("a used address has left: %v", w.pool())
			}
			if got := testutil.ToFloat64(m.used); got != 1 {
				t.Errorf("%v addresses count as used; want 1", got)
			}
		})
	})
	t.Run("for ever if the agent does not answer", func(t *testing.T) {
		w := newWorld()
		w.silent = true
		play(t, w, few(), func(t *testing.T, m *metrics) {
			pass(100 * restDelay)
			if !slices.Contains(w.pool(), fenced) {
				t.Errorf("it has left although the agent may be dead: %v", w.pool())
			}
			if got := testutil.ToFloat64(m.releasing); got != 1 {
				t.Errorf("%v addresses count as on their way back; want 1", got)
			}
		})
	})
}

func TestWhatAnotherFreesBetweenTwoLooksIsNotPublishedAgain(t *testing.T) {
	w := newWorld()
	play(t, w, few(), func(t *testing.T, _ *metrics) {
		w.change(func() {
			w.beforeGet = func() {
				delete(w.node.Spec.IPAM.Pool, ip(4).String())
				delete(w.node.Status.IPAM.ReleaseIPs, planner.Probe.String())
				delete(w.held, 3)
			}
		})
		pass(10 * restDelay)
		if w.beforeGet != nil || len(w.unheld) > 0 {
			t.Errorf("%v was published although nobody holds it", w.unheld)
		}
		if got, want := w.pool(), []string{"10.0.0.1", "10.0.0.2", "10.0.0.3"}; !slices.Equal(got, want) {
			t.Errorf("the pool is %v; want %v", got, want)
		}
	})
}

func TestNothingIsAcquiredThatMayNotBePublished(t *testing.T) {
	forbidden := apierrors.NewForbidden(ciliumNodes().GroupResource(), "worker", errors.New("no patch"))
	w := newWorld()
	w.tryErr, w.writeErr = forbidden, forbidden
	play(t, w, few(), func(t *testing.T, _ *metrics) {
		pass(time.Hour)
		if n := w.counted(&w.acquires); n > 0 {
			t.Errorf("%d slots were acquired", n)
		}
		if got := w.told(); !slices.Equal(got, []string{"NotPermitted"}) {
			t.Errorf("the Events are %v; want NotPermitted once", got)
		}
		w.change(func() { w.tryErr, w.writeErr = nil, nil })
		rested(t, w)
		// What was permitted once may be so no more.
		w.change(func() { w.tryErr, w.writeErr = forbidden, forbidden })
		w.use(ip(1), ip(2), ip(3))
		pass(time.Minute)
		w.change(func() {
			delete(w.held, 3) // what was acquired before the refusal; so one is missing again
			w.acquires = 0
		})
		pass(time.Hour)
		if n := w.counted(&w.acquires); n > 0 {
			t.Errorf("%d slots were acquired after the first refusal", n)
		}
	})
}

func TestWhatIsAwayIsAskedEverMoreRarelyAndToldOfOnce(t *testing.T) {
	forbidden := apierrors.NewForbidden(ciliumNodes().GroupResource(), "worker", errors.New("no patch"))
	tests := map[string]struct {
		take   func(w *world, err error)
		err    error
		count  func(w *world) *int
		reason string
	}{
		"API server": {func(w *world, err error) { w.apiErr = err }, errors.New("away"), func(w *world) *int { return &w.gets }, "APIServerUnavailable"},
		"sidecar":    {func(w *world, err error) { w.sidecarErr = err }, away(), func(w *world) *int { return &w.lists }, "SidecarUnavailable"},
		"write":      {func(w *world, err error) { w.writeErr = err }, forbidden, func(w *world) *int { return &w.patches }, "NotPermitted"},
		"acquisition": {
			func(w *world, err error) { w.askErr = err }, &reconcileError{reasonOwnerNotAdmitted, errors.New("not yours")},
			func(w *world) *int { return &w.acquires }, "OwnerNotAdmitted",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			tt.take(w, tt.err)
			play(t, w, few(), func(t *testing.T, m *metrics) {
				pass(time.Hour)
				// Every 30 s to 45 s once the back-off has grown; events wake nobody.
				for range 1000 {
					w.change(func() {})
					synctest.Wait()
				}
				if n := w.counted(tt.count(w)); n < 70 || n > 140 {
					t.Errorf("asked %d times in an hour; want about 100", n)
				}
				if got := w.told(); !slices.Equal(got, []string{tt.reason}) {
					t.Errorf("the Events are %v; want %s once", got, tt.reason)
				}
				if got := testutil.ToFloat64(m.reconcileErrors.WithLabelValues(tt.reason)); got < 70 {
					t.Errorf("%v failures are counted", got)
				}
				w.change(func() { tt.take(w, nil) })
				pass(time.Minute)
				if len(w.pool()) == 0 {
					t.Error("nothing is published although it is back")
				}
				w.change(func() { tt.take(w, tt.err) })
				w.use(ip(1), ip(2), ip(3), ip(4)) // so that there is something to do
				pass(time.Minute)
				if got := w.told(); len(got) != 2 {
					t.Errorf("the Events are %v; want a second one for the second time", got)
				}
			})
		})
	}
}

func TestAnExhaustedPluginIsAskedEverMoreRarelyAndWhatThereIsIsPublished(t *testing.T) {
	w := newWorld()
	w.size = 5
	play(t, w, planner.Settings{MinAllocate: 8, PreAllocate: 8}, func(t *testing.T, m *metrics) {
		pass(time.Hour)
		if got := len(w.pool()); got != 5 {
			t.Errorf("%d addresses are published; want the 5 that there are", got)
		}
		// 5 that succeed, then from 5 s to 5 min between two.
		if n := w.counted(&w.acquires); n < 10 || n > 30 {
			t.Errorf("asked %d times in an hour", n)
		}
		if got := w.told(); !slices.Equal(got, []string{"PoolExhausted"}) {
			t.Errorf("the Events are %v; want PoolExhausted once", got)
		}
		if got := testutil.ToFloat64(m.acquisitions.WithLabelValues("exhausted")); got == 0 {
			t.Error("no exhaustion is counted")
		}
		w.change(func() { w.size = 100 })
		pass(10 * time.Minute)
		if got := len(w.pool()); got != 8 {
			t.Errorf("%d addresses are published when there are more; want 8", got)
		}
	})
}

func TestAConflictIsAnsweredByALookAtOnceButNotForEver(t *testing.T) {
	w := newWorld()
	w.conflicts = 3
	play(t, w, few(), func(t *testing.T, m *metrics) {
		if len(w.pool()) == 0 {
			t.Error("after three conflicts nothing is published at once")
		}
		if got := testutil.ToFloat64(m.conflicts); got != 3 {
			t.Errorf("%v conflicts are counted; want 3", got)
		}
		rested(t, w)
		w.change(func() { w.conflicts, w.patches = 1<<30, 0 })
		w.use(ip(1), ip(2), ip(3))
		pass(time.Hour)
		if n := w.counted(&w.patches); n < 100 || n > 1000 {
			t.Errorf("tried to write %d times in an hour of conflicts", n)
		}
	})
}

func TestAMissingCiliumNodeIsWaitedForAndNothingIsGivenBack(t *testing.T) {
	w := newWorld()
	w.node = nil
	play(t, w, few(), func(t *testing.T, m *metrics) {
		pass(time.Hour)
		if got := w.told(); !slices.Equal(got, []string{"CiliumNodeMissing"}) {
			t.Errorf("the Events are %v; want CiliumNodeMissing once", got)
		}
		if n := w.counted(&w.acquires); n > 0 {
			t.Errorf("%d slots were acquired for nobody", n)
		}
		w.change(func() { w.create("uid-1") })
		synctest.Wait()
		if len(w.pool()) == 0 {
			t.Error("nothing is published as soon as it is there")
		}
		rested(t, w)
		w.change(func() { w.node = nil })
		pass(time.Hour)
		if len(w.held) != 3 {
			t.Errorf("after its deletion the sidecar holds %v; want all three", w.held)
		}
		if pool, free := testutil.ToFloat64(m.pool), testutil.ToFloat64(m.free); pool != 0 || free != 0 {
			t.Errorf("after its deletion %v addresses count as published, and %v as free", pool, free)
		}
		w.change(func() { w.create("uid-2") })
		synctest.Wait()
		// One more is acquired: nothing of ours is in the pool, so the first publication is due.
		if got, want := w.pool(), []string{"10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4*"}; !slices.Equal(got, want) {
			t.Errorf("the new one has %v; want %v", got, want)
		}
	})
}

func TestAnAddressThatCannotBeGotBackStaysWhileItIsUsed(t *testing.T) {
	w := newWorld()
	play(t, w, few(), func(t *testing.T, _ *metrics) {
		rested(t, w)
		w.use(ip(2))
		pass(time.Minute)
		w.change(func() {
			delete(w.held, 1)
			w.refuses[ip(2)], w.restores = true, 0
		})
		pass(time.Hour)
		if !slices.Contains(w.pool(), "10.0.0.2") {
			t.Errorf("a used address has left the pool: %v", w.pool())
		}
		if n := w.counted(&w.restores); n < 5 || n > 30 {
			t.Errorf("tried to restore it %d times in an hour", n)
		}
		if !slices.Contains(w.told(), "AddressNotHeld") {
			t.Errorf("the Events are %v; want AddressNotHeld among them", w.told())
		}
		w.use()
		pass(10 * restDelay)
		if slices.Contains(w.pool(), "10.0.0.2") || slices.Contains(w.pool(), "10.0.0.2*") {
			t.Errorf("an address that nobody uses and nobody holds is still there: %v", w.pool())
		}
	})
}

func TestWhatIsToldOfAnAddressThatNobodyHoldsIsTrueWhetherItIsPublishedOrNot(t *testing.T) {
	text := describe(planner.AddressNotHeld, []string{"10.0.0.2"})
	for _, want := range []string{"One that is in spec.ipam.pool stays there", "one that is not is not published"} {
		if !strings.Contains(text, want) {
			t.Errorf("it is told %q; want %q in it", text, want)
		}
	}
}

func TestARestoreThatFailsIsCountedAndTheAddressStays(t *testing.T) {
	w := newWorld()
	play(t, w, few(), func(t *testing.T, m *metrics) {
		rested(t, w)
		w.change(func() {
			delete(w.held, 1)
			w.askErr = away()
		})
		pass(time.Minute)
		if got := testutil.ToFloat64(m.acquisitions.WithLabelValues("failed")); got == 0 {
			t.Error("no failed request is counted")
		}
		if !slices.Contains(w.pool(), "10.0.0.2") {
			t.Errorf("the address has left the pool: %v", w.pool())
		}
	})
}

func TestWhatIsDoneWithoutEffectIsNotDoneWithoutPause(t *testing.T) {
	w := newWorld()
	play(t, w, few(), func(t *testing.T, _ *metrics) {
		rested(t, w)
		w.change(func() { w.deaf, w.lists = true, 0 })
		w.use(ip(1), ip(2), ip(3))
		pass(time.Hour)
		if n := w.counted(&w.lists); n < 70 || n > 400 {
			t.Errorf("looked %d times in an hour; want some hundred", n)
		}
		if !slices.Contains(w.told(), "NoProgress") {
			t.Errorf("the Events are %v; want NoProgress among them", w.told())
		}
	})
}

func TestWhatTheInformerHasIsNeverEnoughToWrite(t *testing.T) {
	w := newWorld()
	w.stale = w.copy(w.node) // an empty pool, for ever
	play(t, w, few(), func(t *testing.T, _ *metrics) {
		rested(t, w)
		before := w.counted(&w.patches)
		pass(time.Hour)
		if after := w.counted(&w.patches); after != before {
			t.Errorf("%d writes followed from what is stale", after-before)
		}
	})
}

func TestANodeAtRestCostsTheAPIServerNothing(t *testing.T) {
	w := newWorld()
	play(t, w, few(), func(t *testing.T, _ *metrics) {
		rested(t, w)
		w.change(func() { w.stale = w.copy(w.node) })
		pass(time.Minute)
		before := w.counted(&w.gets)
		pass(time.Hour)
		if after := w.counted(&w.gets); after != before {
			t.Errorf("%d reads although the informer shows that nothing is to be done", after-before)
		}
	})
}

func TestForeignEntriesAreLeftAloneAndToldOfOnce(t *testing.T) {
	w := newWorld()
	w.node.Spec.IPAM.Pool["192.0.2.1"] = allocationIP{Resource: "eni-1"}
	w.node.Spec.IPAM.Pool["not an address"] = allocationIP{}
	w.node.Spec.IPAM.Pool["FD00::1"] = allocationIP{}
	play(t, w, few(), func(t *testing.T, _ *metrics) {
		pass(time.Hour)
		for _, key := range []string{"192.0.2.1", "not an address", "FD00::1"} {
			if !slices.Contains(w.pool(), key) {
				t.Errorf("%s was removed", key)
			}
		}
		if got := w.told(); !slices.Equal(got, []string{"ForeignPoolEntry", "MalformedPoolEntry"}) {
			t.Errorf("the Events are %v", got)
		}
	})
}

func TestACiliumNodeOfAnotherModeIsNotTouched(t *testing.T) {
	modes := map[string]struct {
		set   func(n *ciliumNode)
		named string
	}{
		"cluster-pool":  {func(n *ciliumNode) { n.Spec.IPAM.PodCIDRs = []string{"10.1.0.0/24"} }, "podCIDRs"},
		"multi-pool":    {func(n *ciliumNode) { n.Spec.IPAM.Pools.Requested = []any{"x"} }, "multi-pool"},
		"eni":           {func(n *ciliumNode) { n.Spec.ENI = map[string]any{"vpc-id": "v"} }, "eni"},
		"azure":         {func(n *ciliumNode) { n.Spec.Azure = map[string]any{"interface-name": "eth0"} }, "azure"},
		"alibabacloud":  {func(n *ciliumNode) { n.Spec.AlibabaCloud = map[string]any{"vpc-id": "v"} }, "alibaba"},
		"an operator's": {func(n *ciliumNode) { n.Status.IPAM.OperatorStatus.Error = "no CIDR left" }, "operator-status"},
		"any cloud":     {func(n *ciliumNode) { n.Spec.InstanceID = "i-1" }, "instance-id"},
	}
	for name, tt := range modes {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			tt.set(w.node)
			if err := w.node.checkMode(); err == nil || !strings.Contains(err.Error(), tt.named) || !strings.Contains(err.Error(), "deleted once") {
				t.Errorf("the refusal is %v; want it to say %q and what to do", err, tt.named)
			}
			play(t, w, few(), func(t *testing.T, m *metrics) {
				pass(time.Hour)
				if w.counted(&w.patches)+w.counted(&w.acquires) > 0 || m.ready.Load() {
					t.Errorf("%d writes, %d acquisitions, ready %v", w.patches, w.acquires, m.ready.Load())
				}
				if got := w.told(); !slices.Equal(got, []string{"WrongIPAMMode"}) {
					t.Errorf("the Events are %v; want WrongIPAMMode once", got)
				}
			})
		})
	}
}
