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

func TestBurst(t *testing.T) { newBurst(t, time.Second).run(t) }

// TestBurstDefaultRate has the default of --ipam-cilium-node-update-rate.
func TestBurstDefaultRate(t *testing.T) { newBurst(t, 15*time.Second).run(t) }

// TestBurstOwnRange has the defaults of agent and bridge, which acquires the whole range of the node.
func TestBurstOwnRange(t *testing.T) {
	b := newBurst(t, 15*time.Second)
	b.slots = allocatablePods + len(agentOwners())
	b.bridge = b.newProgram(t, "bridge", nil, b.bridgeArgs("--excess-ip-release-delay="+burstRelease.String(), "--pre-allocate=auto")...)
	b.run(t)
	if b.refused > 0 || b.writes > 0 {
		t.Errorf("%d ADDs failed for want of an address, the bridge wrote %d times; want neither", b.refused, b.writes)
	}
}

// burst is a node to which pods are bound at the same time.
type burst struct {
	*testbed
	// refused is the number of ADDs that failed for want of an address, writes that of the bridge's.
	refused, writes int
}

// burstRelease is the bridge's default of --excess-ip-release-delay.
const burstRelease = 3 * time.Minute

func newBurst(t *testing.T, updateRate time.Duration) *burst {
	t.Helper()
	return &burst{testbed: newTestbed(t, ipv4Only(), delays{update: updateRate, release: burstRelease})}
}

func (tb *burst) run(t *testing.T) {
	t.Helper()
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
	begin, pods := (&kubelet{testbed: tb.testbed, tracker: tracker}).start(ctx, t, burstPods)

	m := &monitor{testbed: tb.testbed, tracker: tracker, grace: time.Minute}
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
		tb.record(t, "from the begin of the burst until addresses for all are published", max(0, at.Sub(begin)))
	}
	after := tb.scrapeBridge(t)
	tb.recordBridge(t, before, after)
	first, _ := before.histogram(t, "api_request_duration_seconds", "patch")
	last, _ := after.histogram(t, "api_request_duration_seconds", "patch")
	tb.writes = last - first
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
func (tb *burst) recordBurst(t *testing.T, begin time.Time, pods []*burstPod, proxy *agentProxy) {
	t.Helper()
	var requested, allocated, ran []time.Duration
	var bound, last time.Time
	failed, late := 0, 0
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
				tb.refused++
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
	tb.record(t, "failed ADDs; for want of an address; of these more than 1s after the begin of the burst", fmt.Sprintf("%d; %d; %d", failed, tb.refused, late))
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
