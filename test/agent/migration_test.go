package agent

import (
	"fmt"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/delegated-ipam/delegated-ipam/test/ciliumagent"
	"github.com/delegated-ipam/delegated-ipam/test/cluster"
)

// A node changes from IPAM mode delegated-plugin to crd while a pod runs. The agent marks the
// endpoint of that pod as external-ipam, so its address need not be in the pool. The CNI
// configuration still names the plugin, so that the pod's DEL frees its address.
func TestMigrationToCRDMode(t *testing.T) {
	tb := newTestbed(t, ipv4Only(), shortDelays())
	tb.delegatePods(t, tb.hostLocal())

	before := tb.newStockAgent(t)
	tb.waitHealthy(t, before.MustStart(t))
	old, careless := &pod{name: "old"}, &pod{name: "careless"}
	must(t, tb.addPod(t.Context(), old))
	must(t, tb.addPod(t.Context(), careless))
	cluster.MustEventually(t, "node to the old pod", time.Minute, func() error { return checkReachable(t.Context(), old.name, old.ips) })

	tb.sidecar.MustStart(t)
	tb.bridge.MustStart(t)
	cluster.MustEventually(t, "the pool to be filled before the agent uses it", time.Minute, func() error { return tb.checkPoolUnused(t) })
	before.End(syscall.SIGTERM)
	for _, life := range []string{"after the move", "after another restart"} {
		tb.waitHealthy(t, tb.agent.MustStart(t))
		cluster.MustEventually(t, "node to the old pod "+life, time.Minute, func() error { return checkReachable(t.Context(), old.name, old.ips) })
		tb.agent.End(syscall.SIGKILL)
	}
	tb.waitHealthy(t, tb.agent.MustStart(t))
	fresh := &pod{name: "fresh"}
	must(t, tb.addPod(t.Context(), fresh))
	cluster.MustEventually(t, "from the old pod to the new one", time.Minute, func() error { return fresh.checkReachableFrom(t.Context(), old) })

	b, err := tb.nodeState(t.Context())
	must(t, err)
	ip := old.ips[0]
	if _, published := b.Pool[ip]; published || slices.Contains(fresh.ips, ip) || !b.Store[ip] {
		t.Errorf("%s of the old pod: in the pool %v, leased by host-local %v, addresses of the new pod %v; want only the lease", ip, published, b.Store[ip], fresh.ips)
	}
	must(t, tb.dropPod(t.Context(), old))
	store, err := tb.hostLocalLeases()
	must(t, err)
	if store[ip] {
		t.Errorf("%s of the old pod has a lease of host-local after its DEL", ip)
	}

	// As the documents warn: without the plugin's name in the configuration DEL does not call it.
	left := careless.ips[0]
	tb.netConf = agentsNetConf
	must(t, tb.dropPod(t.Context(), careless))
	store, err = tb.hostLocalLeases()
	must(t, err)
	if !store[left] {
		t.Errorf("%s was freed by a DEL whose configuration lacks the plugin; docs/install/bridge.md says that it leaks", left)
	}
	tb.record(t, "the old pod's address, the new pod's", fmt.Sprintf("%s, %s", ip, fresh.ips[0]))
}

// checkPoolUnused returns nil if the pool is as the bridge fills it for an agent that uses no
// addresses yet. host-local also has the leases of pods.
func (tb *testbed) checkPoolUnused(t *testing.T) error {
	b, err := tb.nodeState(t.Context())
	if err != nil {
		return err
	}
	// The two pods count, because the bridge does not know that their addresses are external.
	if want := len(agentOwners()) + 2 + ciliumagent.PreAllocate; len(b.Pool) != want || len(b.Used) != 0 {
		return fmt.Errorf("%d addresses are in the pool and %d are used; want %d and 0", len(b.Pool), len(b.Used), want)
	}
	return nil
}
