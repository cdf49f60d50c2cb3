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

func burst(t *testing.T, b *bench, s supplier, updateRate time.Duration) []row {
	const count, limit = 100, 150 * time.Second
	nodes := b.newNodes(t, s, "burst-"+updateRate.String(), 1, nodeOptions{updateRate: updateRate, releaseDelay: defaultReleaseDelay})
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
		last = fmt.Sprintf("%s (p50 %s)", seconds(maximum(started)), seconds(median(started)))
	}
	goal := 5 * time.Second
	if updateRate > time.Second {
		goal = 8 * time.Second
	}
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
	c := countRequests(b.requests(t, begin, end, n))
	name := fmt.Sprintf("%d pods bound to one node, agent's update rate %s", count, updateRate)
	return []row{
		{name, "the last pod has its address, since it was bound", last, "<= " + goal.String(), verdict(all && maximum(started) <= goal)},
		{name, "all addresses are published, since then", published, "<= " + goal.String(), verdict(publishedAfter > 0 && publishedAfter <= goal)},
		{name, "failed ADDs; later than a second", fmt.Sprintf("%d; %d", failed, late), "none later", verdict(late == 0)},
		{name, "writes, GETs", fmt.Sprintf("%d, %d", c.writes, c.gets), "own range 0 writes", verdict(s != ownRange || c.writes == 0)},
		{name, "size of the CiliumNode: before, with all pods", fmt.Sprintf("%d, %d bytes", before.size, n.agent.last().size), "", ""},
	}
}

// excess lets a node have 100 addresses too many.
func excess(t *testing.T, b *bench, s supplier) []row {
	const count = 100
	const first = freeAddresses + count
	nodes := b.newNodes(t, s, "excess", 1, nodeOptions{
		releaseDelay: releaseDelay,
		bridge:       []string{fmt.Sprintf("--pre-allocate=%d", first)},
		ipam:         map[string]any{"pre-allocate": int64(first)},
	})
	n := nodes[0]
	awaitAll(t, "the excess", nodes, func(n *node, o observation) bool {
		return o.pool >= agentAddresses+first && (s == operator || n.agent.used() == agentAddresses && n.plugin.count() == o.pool)
	})
	return releaseOf(t, b, s, n, fmt.Sprintf("excess of %d addresses", count), func() {
		if s == operator {
			check.Must(t, cluster.Patch(t.Context(), b.CiliumNodes(), n.name, fmt.Sprintf(`{"spec":{"ipam":{"pre-allocate":%d}}}`, freeAddresses)))
			return
		}
		n.program.End(syscall.SIGKILL)
		n.startBridge(t, b, fmt.Sprintf("--pre-allocate=%d", freeAddresses))
	})
}

// podsEnd lets 100 pods of a node end within a second.
func podsEnd(t *testing.T, b *bench, s supplier) []row {
	const count, length = 100, time.Second
	nodes := b.newNodes(t, s, "end", 1, nodeOptions{releaseDelay: releaseDelay})
	n := nodes[0]
	pods := b.kubelet.create(t, n, "end", count)
	awaitAll(t, "addresses for the pods", nodes, func(n *node, o observation) bool {
		return n.agent.used() == agentAddresses+count && o.free >= freeAddresses && o.handshakes == 0
	})
	return releaseOf(t, b, s, n, fmt.Sprintf("%d pods end within %s", count, length), func() {
		for part := range slices.Chunk(pods, count/10) {
			b.kubelet.remove(t, part...)
			check.Must(t, cluster.Sleep(t.Context(), length/10))
		}
	})
}

// releaseOf measures the release of an excess, which begins with a function, down to an idle node.
func releaseOf(t *testing.T, b *bench, s supplier, n *node, name string, begins func()) []row {
	t.Helper()
	const limit = 6 * releaseDelay
	idle := agentAddresses + freeAddresses
	if s != operator { // it has the default of Cilium
		idle += watermark
	}
	held, begin := n.agent.last().pool, time.Now()
	begins()
	done := waitUntil(t, limit, func() bool {
		o := n.agent.last()
		return o.pool <= idle && o.handshakes == 0
	})
	end := time.Now()
	released := held - n.agent.last().pool
	c := countRequests(b.requests(t, begin, end, n))
	took := fmt.Sprintf("%.1f", float64(end.Sub(begin))/float64(releaseDelay))
	if !done {
		took = fmt.Sprintf("%d addresses after %s", released, took)
	}
	writes, few := "none released", false
	if released > 0 {
		perAddress := float64(c.writes) / float64(released)
		writes, few = fmt.Sprintf("%.2f", perAddress), perAddress <= 0.5
	}
	return []row{
		{name, "release delays until all are released", took, "<= 2", verdict(done && end.Sub(begin) <= 2*releaseDelay)},
		{name, "writes per address", writes, "<= 0.5", verdict(few)},
	}
}

// slowPlugin starts a bridge whose plugin needs 2 s for a call.
func slowPlugin(t *testing.T, b *bench, s supplier) []row {
	const preAllocate = 32
	o := nodeOptions{updateRate: defaultUpdateRate, pluginDelay: 2 * time.Second, releaseDelay: defaultReleaseDelay}
	if s != ownRange {
		o.bridge = []string{fmt.Sprintf("--pre-allocate=%d", preAllocate)}
	}
	begin := time.Now()
	n := b.newNodes(t, s, "slow", 1, o)[0]
	at := n.agent.firstSeen(begin, func(o observation) bool { return o.pool >= agentAddresses })
	after := at.Sub(n.plugin.acquiredAt(agentAddresses))
	return []row{{
		fmt.Sprintf("fresh node, plugin needs %s per call, pre-allocate %d (own range: auto)", o.pluginDelay, preAllocate),
		"first publication, after the third address was acquired", fmt.Sprintf("%s (%s after the start)", seconds(after), seconds(at.Sub(begin))),
		"<= 3s", verdict(after > 0 && after <= 3*time.Second),
	}}
}

// podAgain ends a pod and starts another one before the release delay has elapsed: 30 s of 3 min, scaled.
func podAgain(t *testing.T, b *bench, s supplier) []row {
	const delay, gap, after = time.Minute, 10 * time.Second, 20 * time.Second
	nodes := b.newNodes(t, s, "again", 1, nodeOptions{releaseDelay: delay})
	n := nodes[0]
	pods := b.kubelet.create(t, n, "first", 5)
	awaitAll(t, "addresses for the pods", nodes, func(n *node, o observation) bool {
		return n.agent.used() == agentAddresses+len(pods) && o.free >= freeAddresses && o.suspended == 0
	})
	check.Must(t, cluster.Sleep(t.Context(), 5*time.Second))

	begin := time.Now()
	b.kubelet.remove(t, pods[0])
	check.Must(t, cluster.Sleep(t.Context(), gap))
	b.kubelet.create(t, n, "second", 1)
	check.Must(t, cluster.Sleep(t.Context(), after))
	c := countRequests(b.requests(t, begin, time.Now(), n))
	return []row{{
		fmt.Sprintf("a pod ends, another starts after %s of a release delay of %s", gap, delay),
		"writes + GETs", fmt.Sprintf("%d + %d", c.writes, c.gets), "0 writes", verdict(c.writes == 0),
	}}
}

// exhausted lets the plugins of many nodes have no address for two minutes while pods wait.
func exhausted(t *testing.T, b *bench, s supplier) []row {
	const length, limit = 2 * time.Minute, 6 * time.Minute
	const waiting = 4
	nodes := b.newNodes(t, s, "exhausted", b.nodes, nodeOptions{releaseDelay: defaultReleaseDelay})
	for _, n := range nodes {
		n.plugin.exhaust(true)
	}
	for _, n := range nodes {
		b.kubelet.create(t, n, "waiting", n.agent.last().free+waiting)
	}
	check.Must(t, cluster.Sleep(t.Context(), length))
	free := time.Now()
	had := map[string]int{}
	for _, n := range nodes {
		had[n.name] = n.agent.last().pool
		n.plugin.exhaust(false)
	}
	var after []time.Duration
	for _, n := range nodes {
		more := func() time.Time {
			return n.agent.firstSeen(free, func(o observation) bool { return o.pool > had[n.name] })
		}
		took := limit
		if waitUntil(t, time.Until(free.Add(limit)), func() bool { return !more().IsZero() }) {
			took = more().Sub(free)
		}
		after = append(after, took)
	}
	return []row{{
		fmt.Sprintf("plugins of %d nodes exhausted for %s, then free", b.nodes, length),
		"first publication", spread(after), "<= 1m0s", verdict(maximum(after) <= time.Minute),
	}}
}

// outage kills the API server, and lets pods start on every node meanwhile.
func outage(t *testing.T, b *bench, s supplier, count int) []row {
	const length, starting = 20 * time.Second, 5 * time.Second // of the API server
	const limit = 2 * time.Minute
	nodes := b.newNodes(t, s, fmt.Sprint("outage-", count), count, nodeOptions{releaseDelay: defaultReleaseDelay})
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
	for _, r := range b.requests(t, down, end, nodes...) {
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
	early := len(b.requests(t, down, up, nodes...))
	most := busiest(b.requests(t, up, end, nodes...))
	return []row{
		{name, "first publication after its return", spread(after), "max <= 15s", verdict(maximum(after) <= 15*time.Second)},
		{name, "requests while it starts", fmt.Sprint(early), "", ""},
		{name, "requests in the busiest second after its return", fmt.Sprint(most), "<= 20/s", verdict(most <= 20)},
	}
}

func freshNodes(t *testing.T, b *bench, s supplier) []row {
	const watched = 45 * time.Second
	begin := time.Now()
	nodes := b.newNodes(t, s, "fresh", b.nodes, nodeOptions{updateRate: defaultUpdateRate, releaseDelay: defaultReleaseDelay})
	check.Must(t, cluster.Sleep(t.Context(), time.Until(begin.Add(watched))))
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
	begin, updatesBefore := time.Now(), b.statusUpdates(t)
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
	check.Must(t, all.Wait())
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
	switch {
	case s == ownRange:
		most = 0
	case watermark == 0:
		most, target = math.Inf(1), ""
	}
	per := func(n int) float64 { return float64(n) / float64(starts) }
	return []row{
		{name, "writes per pod start", fmt.Sprintf("%.2f", per(c.writes)), target, verdict(per(c.writes) <= most)},
		{name, "writes of CiliumNodes, by all; events to all agents", fmt.Sprintf(
			"%.1f/s; %.0f/s", (float64(c.writes)+updates)/lasted, events/lasted), "", ""},
		{name, "size of an event", fmt.Sprintf("%.0f bytes", bytes/events), "", ""},
	}
}
