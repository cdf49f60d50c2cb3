package benchbridge

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

// exhausted lets the plugins of many nodes have no address for two minutes while pods wait.
func exhausted(t *testing.T, b *bench, s supplier) []row {
	const length, limit = 2 * time.Minute, 6 * time.Minute
	const waiting = 4
	nodes := b.newNodes(t, s.prefix("exhausted"), b.nodes, s.options(nodeOptions{
		updateRate: time.Second, pluginDelay: pluginDelay, releaseDelay: defaultReleaseDelay,
	}))
	awaitIdle(t, nodes)
	for _, n := range nodes {
		n.plugin.setCapacity(n.plugin.count())
	}
	for _, n := range nodes {
		b.kubelet.create(t, n, "waiting", n.agent.last().free+waiting)
	}
	harness.Must(t, sleep(t.Context(), length))
	free := time.Now()
	had := map[string]int{}
	for _, n := range nodes {
		had[n.name] = n.agent.last().pool
		n.plugin.setCapacity(1 << 16)
	}
	more := func(n *node) time.Time {
		return n.agent.firstSeen(free, func(o observation) bool { return o.pool > had[n.name] })
	}
	var after []time.Duration
	for _, n := range nodes {
		waitUntil(t, time.Until(free.Add(limit)), func() bool { return !more(n).IsZero() })
		after = append(after, limit)
		if at := more(n); !at.IsZero() {
			after[len(after)-1] = at.Sub(free)
		}
	}
	name := fmt.Sprintf("plugins of %d nodes exhausted for %s, then free", b.nodes, length)
	return []row{
		{name, "first publication", spread(after), "<= 1m0s", verdict(maximum(after) <= time.Minute)},
	}
}

// outage kills the API server, and lets pods start on every node meanwhile.
func outage(t *testing.T, b *bench, s supplier, count int) []row {
	const length, starting = 20 * time.Second, 5 * time.Second // of the API server
	const limit = 2 * time.Minute
	nodes := b.newNodes(t, s.prefix(fmt.Sprint("outage-", count)), count, s.options(nodeOptions{
		updateRate: time.Second, pluginDelay: pluginDelay, releaseDelay: defaultReleaseDelay,
	}))
	awaitIdle(t, nodes)
	harness.Must(t, sleep(t.Context(), 10*time.Second))

	had := map[string]int{}
	for _, n := range nodes {
		had[n.name] = n.agent.last().pool
	}
	down := time.Now()
	b.APIServer.End(syscall.SIGKILL)
	for _, n := range nodes {
		for i := range freeAddresses {
			_, err := n.agent.allocate(fmt.Sprintf("default/offline-%d", i))
			harness.Must(t, err)
		}
	}
	harness.Must(t, sleep(t.Context(), length-starting))
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
