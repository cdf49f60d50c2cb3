// Package e2e tests the real binary with real and scripted IPAM plugins.
package e2e

import (
	"testing"

	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }

// eachNetwork runs a test with an IPv4 network and with a dual-stack network.
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

// nodeWith returns a node with one network. IPv6 is disabled for a network with one subnet, as
// in Cilium's configuration.
func nodeWith(t *testing.T, nw harness.Network) *harness.Node {
	t.Helper()
	n := harness.NewNode(t)
	n.WriteNetwork(t, "05-cilium", nw)
	if len(nw.Subnets) == 1 {
		n.Flags = []string{"--enable-ipv6=false"}
	}
	return n
}

// ranges is the ipam section of an IPv4 network of the scripted plugin.
func ranges() map[string]any {
	return map[string]any{"ranges": [][]map[string]string{{{"subnet": "10.15.0.0/24"}}}}
}

// scriptedNode returns a node whose network delegates to the scripted plugin under the name of
// a plugin type, with an ipam section (nil: ranges).
func scriptedNode(t *testing.T, pluginType string, ipam map[string]any) (*harness.Node, harness.Scripted) {
	t.Helper()
	if ipam == nil {
		ipam = ranges()
	}
	n := harness.NewNode(t)
	plugin := n.InstallScripted(t, pluginType)
	n.WriteNetwork(t, "05-cilium", harness.Network{Name: "pods", CNIVersion: "1.0.0", Plugin: pluginType, IPAM: ipam})
	return n, plugin
}
