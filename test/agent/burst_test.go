package agent

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
	"github.com/delegated-ipam/delegated-ipam/test/cluster"
)

const (
	burstPods = 100
	// burstLimit is how long the burst may take, with the endpoints: the agent limits their rate.
	burstLimit = 15 * time.Minute
	// burstRelease is the bridge's default of --excess-ip-release-delay.
	burstRelease = 3 * time.Minute
)

func TestBurst(t *testing.T) {
	runBurst(t, newTestbed(t, ipv4Only(), delays{time.Second, burstRelease}))
}

// TestBurstDefaultRate has the default of --ipam-cilium-node-update-rate.
func TestBurstDefaultRate(t *testing.T) {
	runBurst(t, newTestbed(t, ipv4Only(), delays{15 * time.Second, burstRelease}))
}

// TestBurstOwnRange has the defaults of agent and bridge, which acquires the whole range of the node.
func TestBurstOwnRange(t *testing.T) {
	tb := newTestbed(t, ipv4Only(), delays{15 * time.Second, burstRelease})
	tb.slots = allocatablePods + len(agentOwners())
	tb.bridge = tb.newBridge(t, "bridge", "--excess-ip-release-delay="+burstRelease.String(), "--pre-allocate=auto")
	if refused, writes := runBurst(t, tb); refused > 0 || writes != "" {
		t.Errorf("%d ADDs failed for want of an address, the bridge wrote: %s; want neither", refused, writes)
	}
}

// runBurst binds pods to the node at the same time. As by the kubelet, the ADDs of all pods run
// concurrently, and a failed one is repeated in a new sandbox after a delay. It returns the number of ADDs
// that failed for want of an address, and the numbers of writes of the bridge before and after, unless they
// are equal.
func runBurst(t *testing.T, tb *testbed) (refused int, writes string) {
	t.Helper()
	tb.start(t, tb.daemon, tb.bridge, tb.agent)
	m := startMonitor(t, tb)
	m.mustAdd(t, "first") // for which the agent compiles the programs of endpoints
	tb.waitConsistent(t, 1, 2*time.Minute)
	// backOffPeriod and workerBackOffPeriodJitterFactor of k8s.io/kubernetes/pkg/kubelet.
	m.retryPause = func() time.Duration { return wait.Jitter(10*time.Second, 0.5) }
	pods := make([]*pod, burstPods)
	for n := range pods {
		pods[n] = &pod{name: fmt.Sprintf("b%d", n)}
		check.Must(t, pods[n].newSandbox())
	}
	before := bridgeWrites(t)
	ctx, cancel := context.WithTimeout(t.Context(), burstLimit)
	defer cancel()
	var all sync.WaitGroup
	for _, p := range pods {
		all.Go(func() {
			if !m.add(ctx, p) {
				t.Errorf("pod %s does not run after %d attempts", p.name, p.attempts)
			}
		})
	}
	all.Wait()
	m.waitPods(t, m.grace)
	tb.waitConsistent(t, 1+burstPods, 5*time.Minute)
	tb.record(t, "from the binding of a pod to the end of its ADD, with its endpoint", cluster.MedianAndMax(m.took))
	tb.record(t, "failed ADDs; for want of an address", fmt.Sprintf("%d; %d", m.failed["ADD"], m.refused))
	if after := bridgeWrites(t); after != before {
		writes = before + ", " + after
	}
	return m.refused, writes
}

func bridgeWrites(t *testing.T) string {
	t.Helper()
	response, err := http.Get("http://" + bridgeAddress + "/metrics")
	check.Must(t, err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	check.Must(t, err)
	found := regexp.MustCompile(`(?m)^delegated_ipam_bridge_api_request_duration_seconds_count\{operation="patch"\} (.+)$`).FindSubmatch(text)
	if found == nil {
		t.Fatalf("the bridge has no number of PATCH requests: %s", text)
	}
	return string(found[1])
}
