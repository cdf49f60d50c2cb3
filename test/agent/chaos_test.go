package agent

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/delegated-ipam/delegated-ipam/test/cluster"
)

// chaosDelays are short enough for many releases, and the release delay is still five times the
// agent's update interval.
func chaosDelays() delays { return delays{update: time.Second, release: 5 * time.Second} }

//evidence:design/reliability bridge, sidecar, agent and API server are killed for minutes, while pods come and go
func TestChaos(t *testing.T) { testChaos(t, ipv4Only()) }

func TestChaosDualStack(t *testing.T) { testChaos(t, dualStack()) }

func testChaos(t *testing.T, nw network) {
	tb := newTestbed(t, nw, chaosDelays())
	length, seed := chaosLength(t), chaosSeed(t)
	tb.record(t, "length, seed", fmt.Sprintf("%s, %d", length, seed))
	tb.sidecar.MustStart(t)
	tb.bridge.MustStart(t)
	tb.waitHealthy(t, tb.agent.MustStart(t))

	tracker := newPodTracker()
	m := &monitor{testbed: tb, tracker: tracker, grace: time.Minute}
	c := &churn{testbed: tb, tracker: tracker, failed: map[string]int{}}
	targets := []*chaosTarget{
		{program: tb.bridge, meanUptime: 15 * time.Second, maxDowntime: 3 * time.Second},
		{program: tb.sidecar, meanUptime: 15 * time.Second, maxDowntime: 3 * time.Second},
		{program: tb.agent, meanUptime: 20 * time.Second, maxDowntime: 3 * time.Second, onStart: func(ctx context.Context, now *cluster.Process) {
			m.followers.Go(func() { m.followAgent(ctx, now) })
		}},
		{program: tb.apiServer, meanUptime: 40 * time.Second, maxDowntime: 5 * time.Second},
	}
	left := tb.runChaos(t, length, seed, targets, m, c)
	tb.checkRecovery(t, m, tracker)
	tb.recordResults(t, targets, m, c, left)
	for _, v := range tracker.violationList() {
		t.Error(v)
	}
}

// runChaos kills programs, and adds and deletes pods, for a while. It returns the remaining pods.
// Every program has been started again, if that was possible.
func (tb *testbed) runChaos(t *testing.T, length time.Duration, seed uint64, targets []*chaosTarget, m *monitor, c *churn) []*pod {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), length)
	defer cancel()
	var all sync.WaitGroup
	for n, v := range targets {
		all.Go(func() {
			if err := v.killRepeatedly(ctx, rand.New(rand.NewPCG(seed, uint64(100+n)))); err != nil {
				t.Errorf("%s: %v", v.program.Name(), err)
			}
		})
	}
	all.Go(func() { m.watchState(ctx) })
	all.Go(func() { m.watchEndpoints(ctx) })
	left := c.run(ctx, seed)
	all.Wait()
	m.followers.Wait()
	return left
}

// checkRecovery waits until every program runs, every running pod is reachable, and all records
// agree.
func (tb *testbed) checkRecovery(t *testing.T, m *monitor, tracker *podTracker) {
	t.Helper()
	begin := time.Now()
	cluster.MustEventually(t, "the agent to be healthy again", 5*time.Minute, func() error {
		if !tb.agent.Current().Running() { // it exits if the API server is down at its start
			tb.agent.MustStart(t)
		}
		return agentAPI().Healthy(t.Context())
	})
	if err := cluster.Eventually(t.Context(), m.grace, func() error { return m.checkPods(t.Context(), tracker.runningPods()) }); err != nil {
		t.Errorf("at the end: %v", err)
	}
	if err := cluster.Eventually(t.Context(), 20*time.Minute, func() error { return tb.checkConsistent(t, len(tracker.runningPods())) }); err != nil {
		t.Errorf("at the end the records do not agree: %v", err)
	}
	b, err := tb.nodeState(t.Context())
	must(t, err)
	for _, subnet := range tb.subnets {
		in := netip.MustParsePrefix(subnet)
		used, pool := countIn(in, b.Used), countIn(in, b.Pool)
		if want := len(agentOwners()) + len(tracker.runningPods()); used != want || pool*tb.families() != len(b.Pool) {
			t.Errorf("at the end %d of %d used and %d of %d published addresses are of %s; want %d used, and as many published ones of each family",
				used, len(b.Used), pool, len(b.Pool), subnet, want)
		}
		tb.record(t, "at the end: pool, used of "+subnet, fmt.Sprintf("%d, %d", pool, used))
	}
	for _, r := range tracker.runningPods() {
		for _, ip := range r.ips {
			if want := podNamespace + "/" + r.name; !ownedBy(b.Used[ip], want) {
				t.Errorf("at the end %s of %s is used by %q", ip, want, b.Used[ip])
			}
		}
	}
	tb.record(t, "from the last kill until all records agree", time.Since(begin))
	tb.record(t, "at the end: host-local's store, pool, used, free", fmt.Sprintf("%d = %d = %d + %d", len(b.Store), len(b.Pool), len(b.Used), len(b.Pool)-len(b.Used)))
}

// countIn returns the number of addresses in a range.
func countIn[V any](in netip.Prefix, all map[netip.Addr]V) int {
	n := 0
	for ip := range all {
		if in.Contains(ip) {
			n++
		}
	}
	return n
}

// ownedBy reports whether an owner is the wanted one. The agent marks owners that it has restored.
func ownedBy(owner, want string) bool { return owner == want || owner == want+" [restored]" }

func (tb *testbed) recordResults(t *testing.T, targets []*chaosTarget, m *monitor, c *churn, left []*pod) {
	t.Helper()
	for _, v := range targets {
		tb.record(t, v.program.Name()+": killed, exited", fmt.Sprintf("%d, %d", v.kills, v.exits))
	}
	tb.record(t, "restarts of the agent that kept every running pod", m.restarts)
	tb.record(t, "from a start of the agent until all of them are ready and reachable", cluster.MedianAndMax(m.restored))
	tb.record(t, "comparisons of the records during the kills", m.comparisons)
	tb.record(t, "addresses in the pool: minimum, maximum; withdrawn during the kills", fmt.Sprintf("%d, %d; %d", m.pool[0], m.pool[1], m.withdrawn))
	tb.record(t, "pods started, deleted, left", fmt.Sprintf("%d, %d, %d", c.tracker.addedCount, c.tracker.removedCount, len(left)))
	tb.record(t, "attempts that failed and were repeated: ADD, DEL", fmt.Sprintf("%d, %d", c.failed["ADD"], c.failed["DEL"]))
	tb.record(t, "start of one pod, with its repetitions", cluster.MedianAndMax(c.took))
	tb.record(t, "violations", len(c.tracker.violationList()))
}

func chaosLength(t *testing.T) time.Duration {
	t.Helper()
	d, err := time.ParseDuration(cluster.MustEnv(t, "AGENT_TEST_CHAOS", "agent-test"))
	if err != nil {
		t.Fatalf("AGENT_TEST_CHAOS: %v; expected a duration such as 10m", err)
	}
	return d
}

func chaosSeed(t *testing.T) uint64 {
	t.Helper()
	text := os.Getenv("AGENT_TEST_SEED")
	if text == "" {
		return rand.Uint64N(1 << 32)
	}
	seed, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("AGENT_TEST_SEED: %v; expected the number that a previous run printed", err)
	}
	return seed
}

// sameAddresses reports whether two lists have the same addresses.
func sameAddresses(a, b []netip.Addr) bool {
	sorted := func(ips []netip.Addr) []netip.Addr { return slices.SortedFunc(slices.Values(ips), netip.Addr.Compare) }
	return slices.Equal(sorted(a), sorted(b))
}
