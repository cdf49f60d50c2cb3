package agent

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/delegated-ipam/delegated-ipam/test/cluster"
)

const (
	burstPods = 100
	// burstLimit is how long the burst may take, with the endpoints: the agent limits their rate.
	burstLimit = 15 * time.Minute
)

//evidence:design/bridge a burst of 100 pods
func TestBurst(t *testing.T) { testBurst(t, time.Second) }

// TestBurstDefaultRate has the default of --ipam-cilium-node-update-rate.
//
//evidence:design/bridge a burst of 100 pods
func TestBurstDefaultRate(t *testing.T) { testBurst(t, 15*time.Second) }

// testBurst binds pods to the node at the same time. The release delay is the bridge's default.
func testBurst(t *testing.T, updateRate time.Duration) {
	tb := newTestbed(t, ipv4Only(), delays{update: updateRate, release: 3 * time.Minute})
	tb.sidecar.MustStart(t)
	tb.bridge.MustStart(t)
	tb.waitHealthy(t, tb.agent.MustStart(t))
	tracker := newPodTracker()
	tb.runFirstPod(t, tracker)

	proxy, before := tb.serveProxy(t), tb.scrapeBridge(t)
	load, err := os.ReadFile("/proc/loadavg")
	must(t, err)
	tb.record(t, "runnable processes of the machine before the burst, average of a minute", strings.Fields(string(load))[0])
	ctx, cancel := context.WithTimeout(t.Context(), burstLimit)
	defer cancel()
	published := tb.awaitPool(ctx, len(agentOwners())+1+burstPods)
	begin, pods := (&kubelet{testbed: tb, tracker: tracker}).start(ctx, t, burstPods)

	m := &monitor{testbed: tb, tracker: tracker, grace: time.Minute}
	if err := cluster.Eventually(t.Context(), m.grace, func() error { return m.checkPods(t.Context(), tracker.runningPods()) }); err != nil {
		t.Errorf("after the burst: %v", err)
	}
	if err := cluster.Eventually(t.Context(), 5*time.Minute, func() error { return tb.checkConsistent(t, 1+burstPods) }); err != nil {
		t.Errorf("after the burst the records do not agree: %v", err)
	}
	if n := len(tracker.runningPods()); n != 1+burstPods {
		t.Errorf("%d pods run; want %d", n, 1+burstPods)
	}
	for _, v := range tracker.violationList() {
		t.Error(v)
	}
	tb.recordBurst(t, begin, pods, proxy)
	cancel() // a pool that was never large enough
	if at := <-published; at.IsZero() {
		t.Errorf("the pool never had addresses for all %d pods", burstPods)
	} else {
		tb.record(t, "from the begin of the burst until addresses for all are published", at.Sub(begin))
	}
	tb.recordBridge(t, before, tb.scrapeBridge(t))
}

// runFirstPod starts a pod, for which the agent compiles the programs of endpoints, and waits until
// the pool is as before the burst.
func (tb *testbed) runFirstPod(t *testing.T, tracker *podTracker) {
	t.Helper()
	first := &pod{name: "first"}
	must(t, tb.addPod(t.Context(), first))
	tracker.added(first)
	cluster.MustEventually(t, "the records to agree before the burst", 2*time.Minute, func() error { return tb.checkConsistent(t, 1) })
}

// recordBurst records when the pods got an address, and when they ran. A pod without an address fails
// the test.
func (tb *testbed) recordBurst(t *testing.T, begin time.Time, pods []*burstPod, proxy *agentProxy) {
	t.Helper()
	var requested, allocated, ran []time.Duration
	var bound, last time.Time
	failed, refused, late := 0, 0, 0
	for _, p := range pods {
		failed += len(p.failed)
		bound = latest(bound, p.bound)
		if !p.running.IsZero() {
			ran = append(ran, p.running.Sub(p.bound))
		}
		has := false
		for i, r := range proxy.of(p.name) {
			if i == 0 {
				requested = append(requested, r.arrived.Sub(p.bound))
			}
			if r.allocated && !has {
				has = true
				allocated = append(allocated, r.answered.Sub(p.bound))
				last = latest(last, r.answered)
			}
			if !r.allocated {
				refused++
				if r.answered.Sub(begin) > time.Second {
					late++
				}
			}
		}
		if !has {
			t.Errorf("pod %s never got an address; its requests: %+v", p.name, proxy.of(p.name))
		}
	}
	tb.record(t, fmt.Sprintf("from the begin of the burst until %d pods are bound", len(pods)), bound.Sub(begin))
	tb.record(t, "from the begin of the burst until the last pod has its address", last.Sub(begin))
	tb.record(t, "from the binding of a pod to cilium-cni's request for its address", cluster.MedianAndMax(requested))
	tb.record(t, "from the binding of a pod to the agent's answer with its address", cluster.MedianAndMax(allocated))
	tb.record(t, "from the binding of a pod to the end of its ADD, with its endpoint", cluster.MedianAndMax(ran))
	tb.record(t, "failed ADDs; for want of an address; of these more than 1s after the begin of the burst", fmt.Sprintf("%d; %d; %d", failed, refused, late))
}

// latest returns the later one of two times.
func latest(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// awaitPool returns a channel that gets the time at which the pool has a number of addresses; zero if
// ctx ends before.
func (tb *testbed) awaitPool(ctx context.Context, size int) <-chan time.Time {
	at := make(chan time.Time, 1)
	go func() {
		for ; ctx.Err() == nil; sleep(ctx, 100*time.Millisecond) {
			if b, err := tb.nodeState(ctx); err == nil && len(b.Pool) >= size {
				at <- time.Now()
				return
			}
		}
		at <- time.Time{}
	}()
	return at
}
