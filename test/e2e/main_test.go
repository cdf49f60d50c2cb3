// Package e2e runs the real binary against real and scripted IPAM plugins.
package e2e

import (
	"testing"

	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }

// eachNetwork runs a test on a node with an IPv4 network and on one with a
// dual-stack network.
func eachNetwork(t *testing.T, test func(t *testing.T, n *harness.Node)) {
	t.Helper()
	t.Parallel()
	networks := map[string]harness.Network{"IPv4 only": harness.IPv4Only(), "dual stack": harness.DualStack()}
	for name, nw := range networks {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, nodeWith(t, nw))
		})
	}
}

// nodeWith returns a node with one network. An IPv4 network is served with
// IPv6 off, as Cilium runs on it.
func nodeWith(t *testing.T, nw harness.Network) *harness.Node {
	t.Helper()
	n := harness.NewNode(t)
	n.WriteNetwork(t, "05-cilium", nw)
	if len(nw.Subnets) == 1 {
		n.Flags = []string{"--enable-ipv6=false"}
	}
	return n
}
