package benchbridge

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
	"github.com/delegated-ipam/delegated-ipam/test/cluster"
)

func burst(t *testing.T, b *bench, s supplier) []row {
	const count, limit, updateRate = 100, 150 * time.Second, defaultUpdateRate
	nodes := b.newNodes(t, s, "burst", 1, nodeOptions{updateRate: updateRate, releaseDelay: defaultReleaseDelay})
	n := nodes[0]

	before := n.agent.last()
	begin := time.Now()
	pods := b.kubelet.create(t, n, "burst", count)
	all := waitUntil(t, limit, func() bool { return len(starts(pods)) == count })
	started := starts(pods)
	// The last status update of the agent, and the reaction of the supplier to it.
	waitUntil(t, 2*updateRate+5*time.Second, func() bool { return n.agent.used() == count+agentAddresses })
	end := time.Now()

	last := fmt.Sprintf("%d of %d after %s", len(started), count, limit)
	if all {
		last = cluster.MedianAndMax(started)
	}
	const goal = 8 * time.Second
	failed, late, bound := 0, 0, begin
	for _, p := range pods {
		at, f, l := p.failures()
		failed, late = failed+f, late+l
		if at.After(bound) {
			bound = at
		}
	}
	published := "not within " + limit.String()
	var publishedAfter time.Duration
	enough := func(o observation) bool { return o.pool >= count+agentAddresses }
	at := n.agent.firstSeen(begin, enough)
	if enough(before) {
		at = begin
	}
	if !at.IsZero() {
		publishedAfter = max(at.Sub(bound), time.Millisecond)
		published = seconds(publishedAfter)
	}
	writes, gets := countRequests(b.requests(t, bySuppliers, begin, end, n))
	name := fmt.Sprintf("%d pods bound to one node, agent's update rate %s", count, updateRate)
	return []row{
		{name, "the last pod has its address, since it was bound", last, "<= " + goal.String(), verdict(all && slices.Max(started) <= goal)},
		{name, "all addresses are published, since then", published, "<= " + goal.String(), verdict(publishedAfter > 0 && publishedAfter <= goal)},
		{name, "failed ADDs; later than a second", fmt.Sprintf("%d; %d", failed, late), "none later", verdict(late == 0)},
		{name, "writes, GETs", fmt.Sprintf("%d, %d", writes, gets), "own range 0 writes", verdict(s != ownRange || writes == 0)},
		{name, "size of the CiliumNode: before, with all pods", fmt.Sprintf("%d, %d bytes", before.size, n.agent.last().size), "", ""},
	}
}

// outage kills the API server, and lets pods start on every node meanwhile.
func outage(t *testing.T, b *bench, s supplier) []row {
	const count = 100
	const length, starting = 20 * time.Second, 5 * time.Second // of the API server
	const limit = 2 * time.Minute
	nodes := b.newNodes(t, s, "outage", count, nodeOptions{releaseDelay: defaultReleaseDelay})
	check.Must(t, cluster.Sleep(t.Context(), 10*time.Second))

	had := map[string]int{}
	for _, n := range nodes {
		had[n.name] = n.agent.last().pool
	}
	down := time.Now()
	b.APIServer.End(syscall.SIGKILL)
	for _, n := range nodes {
		for i := range n.agent.last().free {
			_, err := n.agent.allocate(fmt.Sprintf("default/offline-%d", i))
			check.Must(t, err)
		}
	}
	check.Must(t, cluster.Sleep(t.Context(), length-starting))
	b.APIServer.MustStart(t)
	b.WaitReady(t)
	up := time.Now()
	waitUntil(t, limit, func() bool {
		for _, n := range nodes {
			if n.agent.last().pool < had[n.name]+freeAddresses {
				return false
			}
		}
		return true
	})
	end := time.Now()
	published := map[string]time.Duration{}
	for _, r := range b.requests(t, bySuppliers, down, end, nodes...) {
		if _, seen := published[r.Ref.Name]; !seen && r.publishes() {
			published[r.Ref.Name] = max(0, r.Answered.Sub(up))
		}
	}
	var after []time.Duration
	for _, n := range nodes {
		d, there := published[n.name]
		if !there {
			d = limit
		}
		after = append(after, d)
	}
	name := fmt.Sprintf("API server down for %s, %d nodes", seconds(up.Sub(down)), count)
	// An API server that starts accepts the requests of its last seconds together, and refuses most of them.
	early := len(b.requests(t, bySuppliers, down, up, nodes...))
	most := busiest(b.requests(t, bySuppliers, up, end, nodes...))
	return []row{
		{name, "first publication after its return", cluster.MedianAndMax(after), "max <= 15s", verdict(slices.Max(after) <= 15*time.Second)},
		{name, "requests while it starts", fmt.Sprint(early), "", ""},
		{name, "requests in the busiest second after its return", fmt.Sprint(most), "<= 20/s", verdict(most <= 20)},
	}
}

// churn lets the number of pods of each node go up and down at random, with an agent of each node that
// watches all CiliumNodes.
func churn(t *testing.T, b *bench, s supplier, watermark int) []row {
	const length, fewest, mostPods = 90 * time.Second, 5, 15
	nodes := b.newNodes(t, s, fmt.Sprint("churn-", watermark), b.nodes, nodeOptions{
		releaseDelay: releaseDelay,
		bridge:       []string{fmt.Sprintf("--max-above-watermark=%d", watermark)},
		ipam:         map[string]any{"max-above-watermark": int64(watermark)},
	})
	var baseline errgroup.Group
	pods := make([][]*pod, len(nodes))
	for i, n := range nodes {
		baseline.Go(func() error {
			pods[i] = b.kubelet.create(t, n, "first", (fewest+mostPods)/2)
			return nil
		})
	}
	check.Must(t, baseline.Wait())
	awaitAll(t, "addresses for the pods", nodes, func(n *node, _ observation) bool {
		return n.agent.used() == agentAddresses+(fewest+mostPods)/2
	})
	check.Must(t, cluster.Sleep(t.Context(), 2*releaseDelay))
	watchers := b.watchAll(t, len(nodes))

	eventsBefore, bytesBefore := watchers.received()
	begin := time.Now()
	var mu sync.Mutex
	starts := 0
	var all errgroup.Group
	for i, n := range nodes {
		random := rand.New(rand.NewPCG(uint64(i), 18)) // the same churn in each run
		all.Go(func() error {
			for second := 0; time.Since(begin) < length; second++ {
				if err := cluster.Sleep(t.Context(), time.Second); err != nil {
					return err
				}
				if random.IntN(5) > 0 {
					continue
				}
				if len(pods[i]) > mostPods || len(pods[i]) > fewest && random.IntN(2) == 0 {
					if err := b.kubelet.remove(t.Context(), pods[i][0]); err != nil {
						return err
					}
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
	check.Must(t, all.Wait())
	end := time.Now()
	lasted := end.Sub(begin).Seconds()
	writes, _ := countRequests(b.requests(t, bySuppliers, begin, end, nodes...))
	updates := len(b.requests(t, byAgents, begin, end, nodes...))
	eventsAfter, bytesAfter := watchers.received()
	events, bytes := float64(eventsAfter-eventsBefore), float64(bytesAfter-bytesBefore)
	name := fmt.Sprintf("churn of %d nodes, %.1f pod starts/s, max-above-watermark %d", b.nodes, float64(starts)/lasted, watermark)
	most, target := 0.3, "<= 0.3; own range 0"
	switch {
	case s == ownRange:
		most = 0
	case watermark == 0:
		most, target = math.Inf(1), ""
	}
	per := float64(writes) / float64(starts)
	return []row{
		{name, "writes per pod start", fmt.Sprintf("%.2f", per), target, verdict(per <= most)},
		{name, "writes of CiliumNodes, by all; events to all agents", fmt.Sprintf(
			"%.1f/s; %.0f/s", float64(writes+updates)/lasted, events/lasted), "", ""},
		{name, "size of an event", fmt.Sprintf("%.0f bytes", bytes/events), "", ""},
	}
}
