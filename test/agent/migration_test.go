package agent

import (
	"encoding/json"
	"fmt"
	"slices"
	"syscall"
	"testing"
	"time"
)

// A node goes from ipam mode delegated-plugin to crd while a pod runs. The agent
// marks the endpoint of such a pod as one whose address is none of its business
// (external-ipam), so it does not look for it in the pool. The CNI configuration
// goes on naming the plugin, so that the pod's DEL frees what its ADD took.
func TestMigrationToCRDMode(t *testing.T) {
	l := newLab(t, ipv4Only(), shortRest)
	conf, err := json.Marshal(map[string]any{"cniVersion": "1.0.0", "name": networkName, "type": "cilium-cni", "ipam": l.hostLocal()})
	must(t, err)
	l.netConf = string(conf)

	before := l.agentWith(t, "cilium-agent-delegated-plugin", "--ipam=delegated-plugin", "--local-router-ipv4=169.254.23.0", "--enable-endpoint-health-checking=false")
	l.mustServe(t, before.mustStart(t))
	old, careless := &pod{name: "old"}, &pod{name: "careless"}
	must(t, l.addPod(t.Context(), old))
	must(t, l.addPod(t.Context(), careless))
	mustEventually(t, "node to the old pod", time.Minute, func() error { return reach(t.Context(), old.name, old.ips) })

	l.sidecar.mustStart(t)
	l.bridge.mustStart(t)
	mustEventually(t, "the pool to be filled while nobody looks at it", time.Minute, func() error { return l.settledUnused(t) })
	before.end(syscall.SIGTERM)
	for _, life := range []string{"after the move", "after another restart"} {
		l.mustServe(t, l.agent.mustStart(t))
		mustEventually(t, "node to the old pod "+life, time.Minute, func() error { return reach(t.Context(), old.name, old.ips) })
		l.agent.end(syscall.SIGKILL)
	}
	l.mustServe(t, l.agent.mustStart(t))
	fresh := &pod{name: "fresh"}
	must(t, l.addPod(t.Context(), fresh))
	mustEventually(t, "from the old pod to the new one", time.Minute, func() error { return fresh.reachFrom(t.Context(), old) })

	b, err := l.books(t.Context())
	must(t, err)
	ip := old.ips[0]
	if _, published := b.pool[ip]; published || slices.Contains(fresh.ips, ip) || !b.store[ip] {
		t.Errorf("%s of the old pod: in the pool %v, held by host-local %v, new pod's %v; want it held and nobody else's", ip, published, b.store[ip], fresh.ips)
	}
	must(t, l.dropPod(t.Context(), old))
	store, err := l.store()
	must(t, err)
	if store[ip] {
		t.Errorf("%s of the old pod is still held by host-local after its DEL", ip)
	}

	// What the documents warn of: without the plugin's name nobody asks it to free.
	left := careless.ips[0]
	l.netConf = agentsNetConf
	must(t, l.dropPod(t.Context(), careless))
	store, err = l.store()
	must(t, err)
	if !store[left] {
		t.Errorf("%s was freed by a DEL whose configuration names no plugin; docs/agent.md says that it stays", left)
	}
	l.figure(t, "the old pod's address, the new pod's", fmt.Sprintf("%s, %s", ip, fresh.ips[0]))
}

// settledUnused is nil if the pool is as the bridge fills it for an agent that
// has not asked for anything yet. host-local also holds what pods have.
func (l *lab) settledUnused(t *testing.T) error {
	b, err := l.books(t.Context())
	if err != nil {
		return err
	}
	if want := len(ownOwners()) + preAllocate; len(b.pool) != want || len(b.used) != 0 {
		return fmt.Errorf("%d addresses are in the pool and %d are used; want %d and 0", len(b.pool), len(b.used), want)
	}
	return nil
}
