package benchbridge

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

// burst binds 100 pods to one node.
func burst(t *testing.T, b *bench, s supplier, updateRate time.Duration) []row {
	const count, limit = 100, 150 * time.Second
	nodes := b.newNodes(t, s.prefix("burst-"+updateRate.String()), 1, s.options(nodeOptions{
		updateRate: updateRate, pluginDelay: pluginDelay, releaseDelay: defaultReleaseDelay,
	}))
	awaitIdle(t, nodes)
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
		f, l := p.failures()
		failed, late = failed+f, late+l
		if at := p.boundAt(); at.After(bound) {
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
	nodes := b.newNodes(t, s.prefix("excess"), 1, s.options(nodeOptions{
		updateRate: time.Second, pluginDelay: pluginDelay, releaseDelay: releaseDelay,
		bridge: []string{fmt.Sprintf("--pre-allocate=%d", first)}, ipam: map[string]any{"pre-allocate": int64(first)},
	}))
	n := nodes[0]
	before := agentAddresses + first
	awaitAll(t, "the excess", nodes, func(n *node, o observation) bool {
		return n.agent.used() == agentAddresses && o.pool >= before && n.plugin.count() == o.pool || s == operator && o.pool >= before
	})
	return releaseOf(t, b, n, fmt.Sprintf("excess of %d addresses", count), func() { s.setPreAllocate(t, b, n, freeAddresses) })
}

// podsEnd lets 100 pods of a node end within a second.
func podsEnd(t *testing.T, b *bench, s supplier) []row {
	const count, length = 100, time.Second
	nodes := b.newNodes(t, s.prefix("end"), 1, s.options(nodeOptions{updateRate: time.Second, pluginDelay: pluginDelay, releaseDelay: releaseDelay}))
	awaitIdle(t, nodes)
	n := nodes[0]
	pods := b.kubelet.create(t, n, "end", count)
	awaitAll(t, "addresses for the pods", nodes, func(n *node, o observation) bool {
		return n.agent.used() == agentAddresses+count && o.free >= freeAddresses && o.handshakes == 0
	})
	return releaseOf(t, b, n, fmt.Sprintf("%d pods end within %s", count, length), func() {
		for part := range slices.Chunk(pods, count/10) {
			b.kubelet.remove(t, part...)
			harness.Must(t, sleep(t.Context(), length/10))
		}
	})
}

// releaseOf measures the release of an excess, which begins with a function, down to an idle node.
func releaseOf(t *testing.T, b *bench, n *node, name string, begins func()) []row {
	t.Helper()
	const limit = 6 * releaseDelay
	held, begin := n.agent.last().pool, time.Now()
	begins()
	done := waitUntil(t, limit, func() bool {
		o := n.agent.last()
		return o.pool <= agentAddresses+freeAddresses && o.handshakes == 0
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
	const preAllocate, limit = 32, 3 * time.Minute
	n := b.newNode(t, s.prefix("slow"), 0, s.options(nodeOptions{updateRate: defaultUpdateRate, pluginDelay: 2 * time.Second, releaseDelay: defaultReleaseDelay}))
	begin, free := time.Now(), preAllocate
	if s == ownRange {
		free = n.free()
		n.startBridge(t, b)
	} else {
		n.startBridge(t, b, fmt.Sprintf("--pre-allocate=%d", preAllocate))
	}
	waitUntil(t, limit, func() bool { return n.agent.last().pool >= agentAddresses+free })

	enough, name := n.plugin.acquiredAt(agentAddresses), fmt.Sprintf("fresh node, plugin needs 2s per call, pre-allocate %d (own range: auto)", preAllocate)
	first := "not within " + limit.String()
	var after time.Duration
	if at := n.agent.firstSeen(begin, func(o observation) bool { return o.pool >= agentAddresses }); !at.IsZero() {
		after = at.Sub(enough)
		first = fmt.Sprintf("%s (%s after the start)", seconds(after), seconds(at.Sub(begin)))
	}
	return []row{
		{name, "first publication, after the third address was acquired", first, "<= 3s", verdict(after > 0 && after <= 3*time.Second)},
	}
}
