package kubernetes

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/test/cluster"
	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

// bridge is the switch between the API server and the nodes.
const bridge = "br0"

// bridgeMAC is its link-layer address. The kernel would choose another one when a node is connected
// again, and the other node would send to the old one.
const bridgeMAC = "02:00:00:00:00:01"

// connectCluster sets up the network of the API server. A service address leads to it without a
// kube-proxy, because it is the nodes' router.
func connectCluster(t *testing.T) {
	t.Helper()
	for _, line := range []string{
		"ip link add " + bridge + " address " + bridgeMAC + " type bridge",
		"ip addr add " + apiHost + "/24 dev " + bridge,
		"ip addr add " + apiHost6 + "/64 dev " + bridge + " nodad",
		"ip link set " + bridge + " up",
		"ip addr add " + cluster.ServiceAddress + "/32 dev lo",
		"iptables -t nat -A PREROUTING -d " + cluster.ServiceAddress + " -p tcp --dport 443 -j REDIRECT --to-ports 6443",
	} {
		harness.Must(t, command(line))
	}
}

// connect connects a node to the switch by its eth0.
func (n *node) connect(t *testing.T) {
	t.Helper()
	_ = command("ip link del " + n.name) // of the previous boot, if the kernel has not removed it yet
	for _, line := range []string{
		fmt.Sprintf("ip link add %s type veth peer name eth0 netns %d", n.name, n.pid()),
		fmt.Sprintf("ip link set %s master %s up", n.name, bridge),
	} {
		harness.Must(t, command(line))
	}
}

// command runs a command line.
func command(line string) error {
	words := strings.Fields(line)
	_, err := run(exec.Command(words[0], words[1:]...))
	return err
}

// route adds routes on each node to the podCIDRs of the other, as the route controller of a cloud
// does: the agents do not know the podCIDRs.
func (tb *testbed) route(t *testing.T) {
	t.Helper()
	for _, n := range tb.nodes {
		for _, other := range tb.nodes {
			if other == n {
				continue
			}
			for _, cidr := range tb.mustPodCIDRs(t, other) {
				via := other.ip
				if cidr.Addr().Is6() {
					via = other.ip6
				}
				_, err := n.command(t.Context(), "ip", "route", "replace", cidr.String(), "via", via)
				harness.Must(t, err)
			}
		}
	}
}
