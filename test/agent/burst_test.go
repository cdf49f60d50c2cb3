package agent

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/delegated-ipam/delegated-ipam/test/cluster"
)

const (
	burstPods = 100
	// burstLimit is how long the burst may take, with the endpoints: the agent limits their rate.
	burstLimit = 15 * time.Minute
)

func TestBurst(t *testing.T) { testBurst(t, time.Second) }

// TestBurstDefaultRate has the default of --ipam-cilium-node-update-rate.
func TestBurstDefaultRate(t *testing.T) { testBurst(t, 15*time.Second) }

// testBurst binds pods to the node at once. The release delay is the bridge's default.
func testBurst(t *testing.T, updateRate time.Duration) {
	tb := newTestbed(t, ipv4Only(), delays{update: updateRate, release: 3 * time.Minute})
	tb.sidecar.MustStart(t)
	tb.bridge.MustStart(t)
	tb.waitHealthy(t, tb.agent.MustStart(t))
	cluster.MustEventually(t, "the records to agree before the burst", 2*time.Minute, func() error { return tb.checkConsistent(t, 0) })

	tracker, proxy := newPodTracker(), tb.serveProxy(t)
	patches := tb.bridgePatches(t)
	ctx, cancel := context.WithTimeout(t.Context(), burstLimit)
	defer cancel()
	published := tb.awaitPool(ctx, len(agentOwners())+burstPods)
	begin, pods := (&kubelet{testbed: tb, tracker: tracker}).start(ctx, t, burstPods)

	m := &monitor{testbed: tb, tracker: tracker, grace: time.Minute}
	if err := cluster.Eventually(t.Context(), m.grace, func() error { return m.checkPods(t.Context(), tracker.runningPods()) }); err != nil {
		t.Errorf("after the burst: %v", err)
	}
	if err := cluster.Eventually(t.Context(), 5*time.Minute, func() error { return tb.checkConsistent(t, burstPods) }); err != nil {
		t.Errorf("after the burst the records do not agree: %v", err)
	}
	if n := len(tracker.runningPods()); n != burstPods {
		t.Errorf("%d of %d pods run", n, burstPods)
	}
	for _, v := range tracker.violationList() {
		t.Error(v)
	}
	tb.recordBurst(t, begin, pods, proxy)
	cancel() // a pool that was never large enough
	if at := <-published; at.IsZero() {
		t.Errorf("the pool never had addresses for all %d pods", burstPods)
	} else {
		tb.record(t, "addresses for all published, since the first pod was bound", at.Sub(begin))
	}
	tb.record(t, "PATCH requests of the bridge", tb.bridgePatches(t)-patches)
}

// recordBurst records when the pods got an address, and when they ran. A pod without an address fails
// the test.
func (tb *testbed) recordBurst(t *testing.T, begin time.Time, pods []*burstPod, proxy *agentProxy) {
	t.Helper()
	var requested, allocated, ran []time.Duration
	var bound time.Time
	failed, refused, late := 0, 0, 0
	for _, p := range pods {
		failed += len(p.failed)
		if p.bound.After(bound) {
			bound = p.bound
		}
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
	tb.record(t, fmt.Sprintf("%d pods bound, since the first", len(pods)), bound.Sub(begin))
	tb.record(t, "from the binding of a pod to cilium-cni's request for an address", cluster.MedianAndMax(requested))
	tb.record(t, "from the binding of a pod to the agent's answer with an address", cluster.MedianAndMax(allocated))
	tb.record(t, "from the binding of a pod to the end of its ADD, with the endpoint", cluster.MedianAndMax(ran))
	tb.record(t, "failed ADDs; for want of an address; of these later than 1s after the first pod was bound", fmt.Sprintf("%d; %d; %d", failed, refused, late))
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

// bridgePatches returns the number of PATCH requests of the running bridge to the API server.
func (tb *testbed) bridgePatches(t *testing.T) int {
	t.Helper()
	response, err := http.Get("http://" + bridgeMetrics + "/metrics")
	must(t, err)
	defer response.Body.Close()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(response.Body)
	must(t, err)
	for _, m := range families["delegated_ipam_bridge_api_request_duration_seconds"].GetMetric() {
		if isPatch(m) {
			return int(m.GetHistogram().GetSampleCount())
		}
	}
	t.Fatal("the bridge has no metric of its PATCH requests")
	return 0
}

func isPatch(m *dto.Metric) bool {
	for _, l := range m.GetLabel() {
		if l.GetName() == "operation" {
			return l.GetValue() == "patch"
		}
	}
	return false
}
