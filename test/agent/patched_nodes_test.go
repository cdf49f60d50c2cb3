package agent

import (
	"errors"
	"fmt"
	"net/netip"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/delegated-ipam/delegated-ipam/test/cluster"
)

const (
	secondNode = "node-2"
	// gateway2 and secondIP are the addresses of the cluster and of the second node on their link.
	gateway2 = "198.51.100.1"
	secondIP = "198.51.100.2"
	// secondSubnet is host-local's range on the second node.
	secondSubnet = "10.42.1.0/24"
)

// Two nodes with patched agents probe each other and each other's health endpoints, whose addresses
// host-local allocates.
func TestPatchedAgentTwoNodes(t *testing.T) {
	tb := newPatchedTestbed(t, ipv4Only())
	tb.sidecar.MustStart(t)
	tb.waitHealthy(t, tb.agent.MustStart(t))
	own := tb.mustAgentAddresses(t, agentOwners())

	tb.kube.createNode(t, secondNode, []netip.Addr{netip.MustParseAddr(secondIP)})
	second := tb.newSecondNode(t)
	process := second.MustStart(t)
	tb.connectSecondNode(t, process.PID())
	var other agentAddresses
	cluster.MustEventually(t, "the agent of the second node to have its addresses", 3*time.Minute, func() error {
		if !process.Running() {
			t.Fatalf("the second node ended; see its log in %s", tb.dir)
		}
		node, err := tb.kube.ciliumNode(t.Context(), secondNode)
		if err != nil {
			return err
		}
		other = specAddresses(node)
		return checkRange(other, secondSubnet)
	})
	for _, inNode := range [][]string{nil, tb.enter(process.PID())} {
		cluster.MustEventually(t, "both nodes and their health endpoints to be reachable", 5*time.Minute, func() error { return tb.checkClusterHealth(inNode) })
	}
	tb.checkIngress(t, other["ingress"]) // in the ipcache of the first node
	tb.wantSameAddresses(t, "with a second node", own, agentOwners())
}

// newSecondNode defines the processes of the second node.
func (tb *testbed) newSecondNode(t *testing.T) *cluster.Program {
	t.Helper()
	ipam := tb.hostLocal()
	ipam["ranges"], ipam["dataDir"] = [][]map[string]string{{{"subnet": secondSubnet}}}, tb.path("host-local-2")
	tb.writeNetwork(t, "net.d-2", ipam)
	command := slices.Concat(
		[]string{"bash", filepath.Join(tb.root, "test", "agent", "node.sh")},
		tb.sidecarArgs("--owners=router,health,ingress", "--node-name="+secondNode, "--state-dir="+tb.path("sidecar-2"), "--cni-conf-dir="+tb.path("net.d-2")),
		[]string{"--"}, tb.agentArgs(patchedAgent, patchedFlags()...))
	env := append(tb.agentEnv(secondNode), "NODE_ADDRESSES="+secondIP+"/24", "NODE_GATEWAYS="+gateway2)
	second := tb.newProgram(t, secondNode, env, command...)
	second.InNamespaces(syscall.CLONE_NEWNS | syscall.CLONE_NEWNET | syscall.CLONE_NEWPID)
	return second
}

// connectSecondNode connects a network namespace with the cluster, which routes between the nodes
// and their ranges, as a cloud does.
func (tb *testbed) connectSecondNode(t *testing.T, pid int) {
	t.Helper()
	for _, line := range []string{
		"ip link add eth0 netns " + strconv.Itoa(pid) + " type veth peer name node2 netns " + clusterNetns,
		"ip -n " + clusterNetns + " addr add " + gateway2 + "/24 dev node2",
		"ip -n " + clusterNetns + " link set node2 up",
		"ip netns exec " + clusterNetns + " sysctl -q -w net.ipv4.ip_forward=1",
		"ip -n " + clusterNetns + " route add " + tb.subnets[0] + " via " + tb.nodeIPs[0].String(),
		"ip -n " + clusterNetns + " route add " + secondSubnet + " via " + secondIP,
	} {
		must(t, command(line))
	}
}

// enter returns the prefix of a command line that runs in the namespaces of a process.
func (tb *testbed) enter(pid int) []string {
	return []string{"nsenter", "--target=" + strconv.Itoa(pid), "--mount", "--net", "--pid"}
}

// checkClusterHealth returns nil if the agent of a node reaches both nodes and their endpoints.
func (tb *testbed) checkClusterHealth(prefix []string) error {
	args := append(slices.Clone(prefix), tb.bin("cilium-dbg"), "status", "--verbose")
	out, err := exec.Command(args[0], args[1:]...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("cilium-dbg status: %w: %s", err, out)
	}
	for line := range strings.Lines(string(out)) {
		if strings.HasPrefix(line, "Cluster health:") {
			if strings.Contains(line, "2/2 reachable") {
				return nil
			}
			return errors.New(strings.TrimSpace(line))
		}
	}
	return fmt.Errorf("no line \"Cluster health:\" in %s", out)
}

// checkRange returns nil if each owner has one address, in the range.
func checkRange(all agentAddresses, subnet string) error {
	for _, owner := range agentOwners() {
		if ips := all[owner]; len(ips) != 1 || !netip.MustParsePrefix(subnet).Contains(ips[0]) {
			return fmt.Errorf("%s has %v; want one address of %s", owner, ips, subnet)
		}
	}
	return nil
}
