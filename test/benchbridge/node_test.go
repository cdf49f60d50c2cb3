package benchbridge

import (
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"testing"
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
	"github.com/delegated-ipam/delegated-ipam/test/cluster"
)

const (
	// defaultReleaseDelay is the default of --excess-ip-release-delay; releaseDelay is scaled.
	defaultReleaseDelay, releaseDelay = 3 * time.Minute, 10 * time.Second
	// allocatablePods is how many pods a Node can have: the kubelet's default.
	allocatablePods = 110
	// agentAddresses are the addresses that the agent takes, freeAddresses is the default of
	// --pre-allocate, and watermark that of --max-above-watermark.
	agentAddresses, freeAddresses, watermark = 3, 8, 8
	// pluginDelay is the time of a call of host-local (docs/reference/performance.md).
	pluginDelay = 10 * time.Millisecond
	// defaultUpdateRate is the agent's default of --ipam-cilium-node-update-rate.
	defaultUpdateRate = 15 * time.Second
)

type nodeOptions struct {
	// updateRate is the agent's, 1 s by default, releaseDelay the bridge's.
	updateRate, releaseDelay time.Duration
	// bridge are flags of the bridge.
	bridge []string
	// ipam is spec.ipam of the new CiliumNode.
	ipam map[string]any
	// ownRange gives the node a range of its own, and a Node that can have allocatablePods.
	ownRange bool
	// withoutBridge leaves the pool to the operator.
	withoutBridge bool
}

// node is one node: its CiliumNode, an imitated agent and plugin, and a real bridge.
type node struct {
	name    string
	options nodeOptions
	agent   *agent
	socket  string
}

// newNode starts everything of a node of a supplier but its bridge. The nth node of a case has its own range.
func (b *bench) newNode(t *testing.T, s supplier, prefix string, n int, o nodeOptions) *node {
	t.Helper()
	name, o := fmt.Sprintf("%s%s-%d", prefixes[s], prefix, n), s.options(o)
	node := &node{name: name, options: o, socket: filepath.Join(b.dir, name+".sock")}
	first := netip.AddrFrom4([4]byte{10, byte(n), 0, 10})
	store := "remote"
	if o.ownRange {
		store = "node"
		object := cluster.Object("v1", "Node", name)
		object.Object["status"] = map[string]any{"allocatable": map[string]any{"pods": fmt.Sprint(allocatablePods)}}
		check.Must(t, b.Create(t.Context(), object))
	}
	servePlugin(t, name, node.socket, store, first)
	node.agent = newAgent(t, b.objects.Resource(ciliumNodes()), name, o.updateRate, o.ipam)
	go func() { _ = node.agent.run(t.Context(), b.objects) }() // ends with the test
	return node
}

// newNodes starts nodes with their bridges, all simultaneously, and waits until each agent has started, its
// addresses are reported and the pool is full.
func (b *bench) newNodes(t *testing.T, s supplier, prefix string, count int, o nodeOptions) []*node {
	t.Helper()
	var nodes []*node
	for i := range count {
		nodes = append(nodes, b.newNode(t, s, prefix, i, o))
	}
	for _, n := range nodes {
		n.startBridge(t, b, o.bridge...)
	}
	awaitAll(t, "running agents", nodes, func(n *node, o observation) bool {
		free := freeAddresses
		if n.options.ownRange {
			free = allocatablePods
		}
		return n.agent.used() >= agentAddresses && o.free >= free && o.suspended == 0
	})
	return nodes
}

func (n *node) startBridge(t *testing.T, b *bench, flags ...string) {
	t.Helper()
	if n.options.withoutBridge {
		return
	}
	cluster.NewProgram(t, b.dir, n.name, nil, append([]string{
		b.bridge, "--node-name=" + n.name, "--kubeconfig=" + b.bridgeKubeconfig, "--host=unix://" + n.socket,
		"--excess-ip-release-delay=" + n.options.releaseDelay.String(),
	}, flags...)...).MustStart(t)
}

func awaitAll(t *testing.T, what string, nodes []*node, met func(*node, observation) bool) {
	t.Helper()
	cluster.MustEventually(t, what, 3*time.Minute, func() error {
		for _, n := range nodes {
			if o := n.agent.last(); !met(n, o) {
				return fmt.Errorf("%s has %+v", n.name, o)
			}
		}
		return nil
	})
}

// waitUntil waits until a condition is met or the limit has elapsed, and reports whether it is met.
func waitUntil(t *testing.T, limit time.Duration, met func() bool) bool {
	t.Helper()
	return cluster.Eventually(t.Context(), limit, func() error {
		if !met() {
			return errors.New("not yet")
		}
		return nil
	}) == nil
}
