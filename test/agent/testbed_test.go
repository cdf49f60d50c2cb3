// Package agent tests a real, unmodified cilium-agent with the sidecar and the bridge, a real API
// server and the real host-local. "make agent-test" builds the programs and runs each test in
// separate namespaces; plain "go test" skips most tests. test/README.md describes requirements and tests.
package agent

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/delegated-ipam/delegated-ipam/test/cluster"
)

const (
	nodeName = "node-1"
	// sidecarSocket and agentSocket have their default paths; /run is private to the test.
	sidecarSocket = "/run/cilium/delegated-ipam.sock"
	agentSocket   = "/run/cilium/cilium.sock"
)

// network has the address ranges of pods and the addresses of the node.
type network struct {
	// dual enables IPv6.
	dual bool
	// subnets are host-local's ranges.
	subnets []string
	// nodeIPs are the addresses of the node.
	nodeIPs []netip.Addr
}

func ipv4Only() network {
	return network{
		subnets: []string{"10.42.0.0/24"},
		nodeIPs: []netip.Addr{netip.MustParseAddr("192.0.2.2")},
	}
}

func dualStack() network {
	nw := ipv4Only()
	nw.dual = true
	nw.subnets = append(nw.subnets, "fd00:42::/112")
	nw.nodeIPs = append(nw.nodeIPs, netip.MustParseAddr("2001:db8::2"))
	return nw
}

// families returns the number of addresses of each pod.
func (nw network) families() int { return len(nw.subnets) }

// checkFamilies returns nil if the addresses are right for one pod: one of each family, each in the
// range of host-local.
func (nw network) checkFamilies(ips []netip.Addr) error {
	if len(ips) != nw.families() {
		return fmt.Errorf("has %v; want %d addresses", ips, nw.families())
	}
	for _, subnet := range nw.subnets {
		if in := netip.MustParsePrefix(subnet); !slices.ContainsFunc(ips, in.Contains) {
			return fmt.Errorf("has %v; want one of %s", ips, subnet)
		}
	}
	return nil
}

// delays are the delays of agent and bridge.
type delays struct {
	// update is the agent's --ipam-cilium-node-update-rate.
	update time.Duration
	// release is the bridge's --excess-ip-release-delay.
	release time.Duration
}

// testbed is a node and its cluster, with real programs.
type testbed struct {
	network
	// dir has the files of this test: logs, certificates, state directories.
	dir string
	// built is the output directory of build.sh: bin, crds, lib.
	built string
	// root is the directory of the repository.
	root string
	kube *kube
	// netConf is the CNI configuration of cilium-cni.
	netConf string
	// chain is the directory of the primary CNI's configuration, to which the agent appends
	// cilium-cni; empty if cilium-cni is the primary CNI.
	chain string
	// calico is set if the plugin is calico-ipam, which has no files of host-local.
	calico bool
	// slots is how many slots an idle node has; 0 for ciliumagent.PreAllocate more than are used.
	slots int
	// cniSocket is the socket by which cilium-cni reaches the agent.
	cniSocket string
	// pluginDir is the directory of the plugin that cilium-cni delegates to.
	pluginDir string
	// scriptedDir is the script directory of the scripted plugin; empty with host-local.
	scriptedDir string

	apiServer, sidecar, bridge, agent *cluster.Program
}

// newTestbed sets up the node's network and an API server with the node, and defines the programs. It
// skips the test outside the namespaces of run.sh.
func newTestbed(t *testing.T, nw network, d delays) *testbed {
	t.Helper()
	if os.Getenv("AGENT_TEST_NAMESPACED") == "" {
		t.Skip("the test needs root, a cilium-agent and separate namespaces; run 'make agent-test'")
	}
	tb := &testbed{network: nw, netConf: agentsNetConf, cniSocket: agentSocket, built: cluster.MustEnv(t, "AGENT_TEST_DIR", "agent-test"), root: cluster.MustEnv(t, "AGENT_TEST_ROOT", "agent-test")}
	tb.pluginDir = tb.plugins()
	tb.dir = filepath.Join(tb.built, "runs", t.Name())
	must(t, os.RemoveAll(tb.dir))
	must(t, os.MkdirAll(tb.dir, 0o755))
	tb.connectNode(t)
	tb.startCluster(t)
	tb.defineSidecar(t)
	tb.defineAgent(t, d.update)
	tb.defineBridge(t, d.release)
	return tb
}

// bin returns the path of a program that build.sh has built.
func (tb *testbed) bin(name string) string { return filepath.Join(tb.binDir(), name) }

func (tb *testbed) binDir() string {
	if dir := os.Getenv("AGENT_TEST_BIN"); dir != "" {
		return dir
	}
	return filepath.Join(tb.built, "bin")
}

// ownProgram returns the path of a program of this repository.
func (tb *testbed) ownProgram(name string) string {
	if dir := os.Getenv("AGENT_TEST_OWN_BIN"); dir != "" {
		return filepath.Join(dir, name)
	}
	return filepath.Join(tb.root, "bin", name)
}

// path returns a path in the directory of this test.
func (tb *testbed) path(name ...string) string {
	return filepath.Join(append([]string{tb.dir}, name...)...)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
