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
	"syscall"
	"testing"
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
	"github.com/delegated-ipam/delegated-ipam/test/cluster"
)

const (
	churnWorkers = 3
	// podsEach is the maximum number of pods of a worker.
	podsEach = 12
	// maxPause is the maximum pause of a worker that has reached its number of pods.
	maxPause = 20 * time.Second
)

// chaosDelays are short enough for many releases, and the release delay is still five times the
// agent's update interval.
func chaosDelays() delays { return delays{time.Second, 5 * time.Second} }

//evidence:design/reliability bridge, daemon, agent and API server are killed for minutes, while pods come and go
func TestChaos(t *testing.T) { testChaos(t, ipv4Only()) }

func TestChaosDualStack(t *testing.T) { testChaos(t, dualStack()) }

func testChaos(t *testing.T, nw network) {
	tb := newTestbed(t, nw, chaosDelays())
	tb.start(t, tb.daemon, tb.bridge, tb.agent)
	m := startMonitor(t, tb)
	m.runChaos(t)
	begin := time.Now()
	tb.restartAgent(t)
	m.waitPods(t, m.grace)
	pods := m.runningPods()
	tb.waitConsistent(t, len(pods), 20*time.Minute)
	b, err := tb.nodeState(t.Context())
	check.Must(t, err)
	for _, subnet := range tb.subnets {
		in := netip.MustParsePrefix(subnet)
		used, pool := countIn(in, b.Used), countIn(in, b.Pool)
		if want := len(agentOwners()) + len(pods); used != want || pool*tb.families() != len(b.Pool) {
			t.Errorf("at the end %d of %d used and %d of %d published addresses are of %s; want %d used, and as many published ones of each family",
				used, len(b.Used), pool, len(b.Pool), subnet, want)
		}
	}
	for _, r := range pods {
		for _, ip := range r.ips {
			// The agent marks owners that it has restored.
			if want := podNamespace + "/" + r.name; b.Used[ip] != want && b.Used[ip] != want+" [restored]" {
				t.Errorf("at the end %s of %s is used by %q", ip, want, b.Used[ip])
			}
		}
	}
	tb.record(t, "from the last kill until all records agree", time.Since(begin))
}

func countIn[V any](in netip.Prefix, all map[netip.Addr]V) int {
	n := 0
	for ip := range all {
		if in.Contains(ip) {
			n++
		}
	}
	return n
}

// restartAgent waits until the agent is healthy; it ends if the API server is down at its start.
func (tb *testbed) restartAgent(t *testing.T) {
	t.Helper()
	cluster.MustEventually(t, "the agent to be healthy again", 5*time.Minute, func() error {
		if !tb.agent.Current().Running() {
			tb.agent.MustStart(t)
		}
		return agentAPI().Healthy(t.Context())
	})
}

// runChaos kills programs, and adds and deletes pods, for a while. It returns the remaining pods.
// Every program has been started again, if that was possible.
func (m *monitor) runChaos(t *testing.T) (left []*pod) {
	t.Helper()
	length, err := time.ParseDuration(cluster.MustEnv(t, "AGENT_TEST_CHAOS", "agent-test"))
	check.Must(t, err)
	seed := chaosSeed(t)
	m.record(t, "length, seed", fmt.Sprintf("%s, %d", length, seed))
	targets := []*chaosTarget{
		{program: m.bridge, meanUptime: 15 * time.Second, maxDowntime: 3 * time.Second},
		{program: m.daemon, meanUptime: 15 * time.Second, maxDowntime: 3 * time.Second},
		{program: m.agent, meanUptime: 20 * time.Second, maxDowntime: 3 * time.Second, onStart: func(ctx context.Context, now *cluster.Process) {
			m.followers.Go(func() { m.followAgent(ctx, now) })
		}},
		{program: m.APIServer, meanUptime: 40 * time.Second, maxDowntime: 5 * time.Second},
	}
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
	pods := make([][]*pod, churnWorkers)
	for n := range churnWorkers {
		all.Go(func() { pods[n] = m.churn(ctx, n, rand.New(rand.NewPCG(seed, uint64(n)))) })
	}
	all.Wait()
	m.followers.Wait()
	for _, v := range targets {
		m.record(t, v.program.Name()+": killed, exited", fmt.Sprintf("%d, %d", v.kills, v.exits))
	}
	m.record(t, "restarts of the agent that kept every running pod", len(m.restored))
	m.record(t, "from a start of the agent until all of them are ready and reachable", cluster.MedianAndMax(m.restored))
	m.record(t, "comparisons of the records during the kills", m.comparisons)
	m.record(t, "attempts that failed and were repeated: ADD, DEL", fmt.Sprintf("%d, %d", m.failed["ADD"], m.failed["DEL"]))
	m.record(t, fmt.Sprintf("start of one of %d pods, with its repetitions", len(m.took)), cluster.MedianAndMax(m.took))
	return slices.Concat(pods...)
}

// churn moves between random numbers of pods, so that the pool must grow and shrink, and
// deletes random pods. It returns the remaining ones.
func (m *monitor) churn(ctx context.Context, worker int, random *rand.Rand) []*pod {
	var mine []*pod
	goal := podsEach
	for n := 0; ctx.Err() == nil; n++ {
		switch {
		case len(mine) < goal:
			if p := (&pod{name: fmt.Sprintf("c%d-%d", worker, n)}); m.add(ctx, p) {
				mine = append(mine, p)
			}
		case len(mine) > 0:
			i := random.IntN(len(mine))
			m.drop(mine[i])
			mine = slices.Delete(mine, i, i+1)
		}
		if len(mine) == goal || random.IntN(8) == 0 {
			goal = random.IntN(podsEach + 1)
			_ = cluster.Sleep(ctx, randomDuration(random, maxPause))
		}
	}
	return mine
}

func chaosSeed(t *testing.T) uint64 {
	t.Helper()
	text := os.Getenv("AGENT_TEST_SEED")
	if text == "" {
		return rand.Uint64N(1 << 32)
	}
	seed, err := strconv.ParseUint(text, 10, 64)
	check.Must(t, err)
	return seed
}

// chaosTarget is a program that is killed repeatedly, and restarted as by a supervisor.
type chaosTarget struct {
	program *cluster.Program
	// meanUptime is the average time between two kills, maxDowntime the longest time until it is restarted.
	meanUptime, maxDowntime time.Duration
	// onStart is called with each new process.
	onStart func(context.Context, *cluster.Process)

	kills, exits int
}

// killRepeatedly kills and restarts the program until ctx ends, and leaves it running.
func (c *chaosTarget) killRepeatedly(ctx context.Context, random *rand.Rand) error {
	now := c.program.Current()
	for {
		select {
		case <-ctx.Done():
		case <-now.Done():
			c.exits++
		case <-time.After(randomDuration(random, 2*c.meanUptime)):
			c.program.End(syscall.SIGKILL)
			c.kills++
		}
		over := ctx.Err() != nil
		if over && now.Running() {
			return nil
		}
		_ = cluster.Sleep(ctx, randomDuration(random, c.maxDowntime))
		var err error
		if now, err = c.program.Start(); err != nil {
			return err
		}
		if c.onStart != nil {
			c.onStart(ctx, now)
		}
		if over {
			return nil
		}
	}
}

func randomDuration(random *rand.Rand, limit time.Duration) time.Duration {
	return time.Duration(random.Int64N(int64(limit)))
}
