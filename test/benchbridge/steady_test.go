package benchbridge

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

// podAgain ends a pod and starts another one before the release delay has elapsed: 30 s of 3 min,
// scaled.
func podAgain(t *testing.T, b *bench, s supplier) []row {
	const delay, gap, after = time.Minute, 10 * time.Second, 20 * time.Second
	nodes := b.newNodes(t, s.prefix("again"), 1, s.options(nodeOptions{updateRate: time.Second, pluginDelay: pluginDelay, releaseDelay: delay}))
	awaitIdle(t, nodes)
	n := nodes[0]
	pods := b.kubelet.create(t, n, "first", 5)
	awaitAll(t, "addresses for the pods", nodes, func(n *node, o observation) bool {
		return n.agent.used() == agentAddresses+len(pods) && o.free >= freeAddresses && o.suspended == 0
	})
	harness.Must(t, sleep(t.Context(), 5*time.Second))

	begin := time.Now()
	b.kubelet.remove(t, pods[0])
	harness.Must(t, sleep(t.Context(), gap))
	b.kubelet.create(t, n, "second", 1)
	harness.Must(t, sleep(t.Context(), after))
	c := countRequests(b.requests(t, begin, time.Now(), n))
	return []row{{
		fmt.Sprintf("a pod ends, another starts after %s of a release delay of %s", gap, delay),
		"writes + GETs", fmt.Sprintf("%d + %d", c.writes, c.gets), "0 writes", verdict(c.writes == 0),
	}}
}

// freshNodes starts many nodes simultaneously.
func freshNodes(t *testing.T, b *bench, s supplier) []row {
	const watched = 45 * time.Second
	begin := time.Now()
	nodes := b.newNodes(t, s.prefix("fresh"), b.nodes, s.options(nodeOptions{
		updateRate: defaultUpdateRate, pluginDelay: pluginDelay, releaseDelay: defaultReleaseDelay,
	}))
	awaitIdle(t, nodes)
	harness.Must(t, sleep(t.Context(), time.Until(begin.Add(watched))))
	end := time.Now()
	suspending := 0
	var first []time.Duration
	for _, n := range nodes {
		if at := n.agent.firstSeen(begin, func(o observation) bool { return o.suspended > 0 }); !at.IsZero() {
			suspending++
		}
		first = append(first, n.agent.firstSeen(begin, func(o observation) bool { return o.pool >= agentAddresses }).Sub(begin))
	}
	c := countRequests(b.requests(t, begin, end, nodes...))
	name := fmt.Sprintf("%d fresh nodes", b.nodes)
	per := func(n int) float64 { return float64(n) / float64(len(nodes)) }
	return []row{
		{name, fmt.Sprintf("nodes that suspend a slot within %s", watched), fmt.Sprint(suspending), "0", verdict(suspending == 0)},
		{name, "first publication", spread(first), "", ""},
		{name, "writes, GETs, all requests per node", fmt.Sprintf("%.1f, %.1f, %.1f", per(c.writes), per(c.gets), per(c.all)), "", ""},
	}
}

// churn lets the number of pods of each node go up and down at random, with an agent of each node that
// watches all CiliumNodes.
func churn(t *testing.T, b *bench, s supplier, watermark int) []row {
	const length, fewest, mostPods = 90 * time.Second, 5, 15
	nodes := b.newNodes(t, s.prefix(fmt.Sprint("churn-", watermark)), b.nodes, s.options(nodeOptions{
		updateRate: time.Second, pluginDelay: pluginDelay, releaseDelay: releaseDelay,
		bridge: []string{fmt.Sprintf("--max-above-watermark=%d", watermark)},
		ipam:   map[string]any{"max-above-watermark": int64(watermark)},
	}))
	awaitIdle(t, nodes)
	var baseline errgroup.Group
	pods := make([][]*pod, len(nodes))
	for i, n := range nodes {
		baseline.Go(func() error {
			pods[i] = b.kubelet.create(t, n, "first", (fewest+mostPods)/2)
			return nil
		})
	}
	harness.Must(t, baseline.Wait())
	awaitAll(t, "addresses for the pods", nodes, func(n *node, _ observation) bool {
		return n.agent.used() == agentAddresses+(fewest+mostPods)/2
	})
	harness.Must(t, sleep(t.Context(), 2*releaseDelay))
	watchers := b.watchAll(t, len(nodes))

	eventsBefore, bytesBefore := watchers.received()
	begin, updatesBefore := time.Now(), b.statusUpdates(t)
	var mu sync.Mutex
	starts := 0
	var all errgroup.Group
	for i, n := range nodes {
		random := rand.New(rand.NewPCG(uint64(i), 18)) // the same churn in each run
		all.Go(func() error {
			for second := 0; time.Since(begin) < length; second++ {
				if err := sleep(t.Context(), time.Second); err != nil {
					return err
				}
				if random.IntN(5) > 0 {
					continue
				}
				if len(pods[i]) > mostPods || len(pods[i]) > fewest && random.IntN(2) == 0 {
					b.kubelet.remove(t, pods[i][0])
					pods[i] = pods[i][1:]
					continue
				}
				pods[i] = append(pods[i], b.kubelet.create(t, n, fmt.Sprint("churn-", second), 1)...)
				mu.Lock()
				starts++
				mu.Unlock()
			}
			return nil
		})
	}
	harness.Must(t, all.Wait())
	end := time.Now()
	lasted := end.Sub(begin).Seconds()
	requests := b.requests(t, begin, end, nodes...)
	c := countRequests(requests)
	updates := b.statusUpdates(t) - updatesBefore
	for _, r := range requests {
		if r.Verb == "update" && r.Ref.Subresource == "status" {
			updates-- // the operator's
		}
	}
	eventsAfter, bytesAfter := watchers.received()
	events, bytes := float64(eventsAfter-eventsBefore), float64(bytesAfter-bytesBefore)
	name := fmt.Sprintf("churn of %d nodes, %.1f pod starts/s, max-above-watermark %d", b.nodes, float64(starts)/lasted, watermark)
	most, target := 0.3, "<= 0.3; own range 0"
	if s == ownRange {
		most = 0
	}
	per := func(n int) float64 { return float64(n) / float64(starts) }
	return []row{
		{name, "writes per pod start", fmt.Sprintf("%.2f", per(c.writes)), target, verdict(per(c.writes) <= most)},
		{name, "writes of CiliumNodes, by all; events to all agents", fmt.Sprintf(
			"%.1f/s; %.0f/s", (float64(c.writes)+updates)/lasted, events/lasted), "", ""},
		{name, "size of an event", fmt.Sprintf("%.0f bytes", bytes/events), "", ""},
	}
}
