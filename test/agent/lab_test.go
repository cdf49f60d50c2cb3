// Package agent runs a real, unmodified cilium-agent over the sidecar and the
// bridge, with a real API server and the real host-local. "make agent-test"
// builds what it needs and gives each test namespaces of its own; "go test"
// alone skips every test. README.md says what it needs and what it shows.
package agent

import (
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"
)

const (
	nodeName = "lab-1"
	// sidecarSocket and agentSocket lie where a node has them; /run is the test's own.
	sidecarSocket = "/run/cilium/delegated-ipam.sock"
	agentSocket   = "/run/cilium/cilium.sock"
)

// network is what a lab's pods and node have as addresses.
type network struct {
	// dual tells that IPv6 is on, too.
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

// families are how many addresses each pod gets.
func (nw network) families() int { return len(nw.subnets) }

// lab is one node with its cluster. Everything in it is real.
type lab struct {
	network
	// dir holds what this test writes: logs, certificates, states.
	dir string
	// built is what build.sh has made: bin, crds, lib.
	built string
	// root is the project's directory.
	root string
	kube *kube
	// netConf is the CNI configuration that cilium-cni gets.
	netConf string

	apiServer, sidecar, bridge, agent *program
}

// newLab makes the node's network and an API server that knows the node. It
// skips the test outside the namespaces that run.sh makes.
//
// Addresses are free for releaseDelay before the bridge marks them.
func newLab(t *testing.T, nw network, releaseDelay time.Duration) *lab {
	t.Helper()
	if os.Getenv("AGENT_TEST_INSIDE") == "" {
		t.Skip("skipped: it needs root, a cilium-agent and namespaces of its own; run 'make agent-test'")
	}
	l := &lab{network: nw, netConf: agentsNetConf, built: mustEnv(t, "AGENT_TEST_DIR"), root: mustEnv(t, "AGENT_TEST_ROOT")}
	l.dir = filepath.Join(l.built, "runs", t.Name())
	must(t, os.RemoveAll(l.dir))
	must(t, os.MkdirAll(l.dir, 0o755))
	l.connectNode(t)
	l.startCluster(t)
	l.defineSidecar(t)
	l.defineAgent(t)
	l.defineBridge(t, releaseDelay)
	return l
}

// bin is the path of a program that build.sh has built.
func (l *lab) bin(name string) string { return filepath.Join(l.binDir(), name) }

func (l *lab) binDir() string {
	if dir := os.Getenv("AGENT_TEST_BIN"); dir != "" {
		return dir
	}
	return filepath.Join(l.built, "bin")
}

// own is the path of a program of the project.
func (l *lab) own(name string) string {
	if dir := os.Getenv("AGENT_TEST_OWN_BIN"); dir != "" {
		return filepath.Join(dir, name)
	}
	return filepath.Join(l.root, "bin", name)
}

// path is a path of this test.
func (l *lab) path(name ...string) string {
	return filepath.Join(append([]string{l.dir}, name...)...)
}

func mustEnv(t *testing.T, name string) string {
	t.Helper()
	value := os.Getenv(name)
	if value == "" {
		t.Fatalf("$%s is empty; run 'make agent-test'", name)
	}
	return value
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
