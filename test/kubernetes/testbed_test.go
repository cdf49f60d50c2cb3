// Package kubernetes tests the images and manifests on two real nodes: kubelets, containerd and
// cilium-agents, an API server with its controllers and scheduler. "make cluster-test" builds the
// programs and runs the test in separate namespaces; plain "go test" skips it. test/README.md describes
// requirements and cases.
package kubernetes

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/delegated-ipam/delegated-ipam/test/ciliumagent"
	"github.com/delegated-ipam/delegated-ipam/test/cluster"
	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

const (
	// apiHost and apiHost6 are the addresses of the API server, and of the nodes' router.
	apiHost, apiHost6 = "192.0.2.1", "2001:db8::1"
	// podRange and podRange6 are the ranges of which the controller manager gives each node a part.
	podRange, podRange6 = "10.244.0.0/16", "fd00:10:244::/56"
	// systemNamespace is the namespace of the manifests.
	systemNamespace = "kube-system"
	// convergeTimeout is when a test gives up waiting. It is long enough for a busy machine, so it
	// does not limit the time of any operation: the kubelet waits up to 5 minutes before it starts a
	// container again (test/README.md, Recovery times), and again if the container has ended meanwhile.
	convergeTimeout = 15 * time.Minute
)

// mode is the way in which agents and pods get their addresses.
type mode struct {
	// manifests is the kustomization under test.
	manifests string
	// agent is the program of the agents, agentFlags what it gets beside the flags of every agent.
	agent      string
	agentFlags []string
	// checkNode returns nil if the records of a node agree with each other and with the running pods.
	checkNode func(*testbed, context.Context, *node, []corev1.Pod) error
}

// bridgeMode is ipam mode crd: the bridge fills the pools of the agents.
func bridgeMode() mode {
	return mode{
		manifests: "deploy/kubernetes/overlays/with-bridge",
		agent:     "cilium-agent",
		agentFlags: []string{
			"--ipam=crd", "--ipam-cilium-node-update-rate=1s",
			"--write-cni-conf-when-ready=/etc/cni/net.d/05-cilium.conflist",
		},
		checkNode: (*testbed).checkPool,
	}
}

// testbed is a cluster of two nodes.
type testbed struct {
	*cluster.Cluster
	mode
	nodes []*node
	// dual enables IPv6.
	dual bool
	// root is the directory of the repository, built the output of build.sh, dir the directory of
	// this run.
	root, built, dir string
}

// newTestbed starts an API server and both nodes, which have neither Cilium's configuration nor the
// manifests yet. It skips the test outside the namespaces of run.sh.
func newTestbed(t *testing.T, m mode) *testbed {
	t.Helper()
	if os.Getenv("CLUSTER_TEST_NAMESPACED") == "" {
		t.Skip("the test needs root, containerd, a kubelet and separate namespaces; run 'make cluster-test'")
	}
	tb := &testbed{mode: m, root: cluster.MustEnv(t, "CLUSTER_TEST_ROOT", "cluster-test"), built: cluster.MustEnv(t, "CLUSTER_TEST_DIR", "cluster-test")}
	tb.dual = os.Getenv("CLUSTER_TEST_DUAL") != ""
	tb.dir = filepath.Join(tb.built, "run", t.Name())
	harness.Must(t, os.RemoveAll(tb.dir))
	harness.Must(t, os.MkdirAll(tb.dir, 0o755))
	connectCluster(t)
	names := []string{"node-1", "node-2"}
	tb.Cluster = cluster.Start(t, cluster.Config{
		Dir:       tb.dir,
		APIServer: tb.bin("kube-apiserver"),
		Host:      apiHost,
		Controllers: &cluster.Controllers{
			ControllerManager: tb.bin("kube-controller-manager"),
			Scheduler:         tb.bin("kube-scheduler"),
			PodCIDRs:          strings.Join(tb.podRanges(), ","),
			Nodes:             names,
		},
	})
	tb.CreateKinds(t, filepath.Join(cluster.MustEnv(t, "CLUSTER_TEST_AGENT_DIR", "cluster-test"), "crds")) // as Cilium's operator does
	for i, name := range names {
		tb.nodes = append(tb.nodes, tb.newNode(t, name, 11+i))
	}
	for _, n := range tb.nodes {
		n.boot(t)
	}
	return tb
}

// podRanges returns the ranges of the enabled families.
func (tb *testbed) podRanges() []string {
	if tb.dual {
		return []string{podRange, podRange6}
	}
	return []string{podRange}
}

// families returns the number of addresses of each pod.
func (tb *testbed) families() int { return len(tb.podRanges()) }

// bin returns the path of a program that build.sh has built.
func (tb *testbed) bin(name string) string { return filepath.Join(tb.built, "bin", name) }

// record adds a measurement to the table that run.sh prints at the end.
func (tb *testbed) record(t *testing.T, what string, value any) {
	t.Helper()
	cluster.Record(t, filepath.Join(tb.built, "measurements.md"), what, value)
}

// allAgentFlags returns the flags of a node's agent.
func (tb *testbed) allAgentFlags() []string {
	return slices.Concat(ciliumagent.Flags(), tb.agentFlags, []string{
		"--k8s-kubeconfig-path=" + filepath.Join(tb.dir, "admin.kubeconfig"),
		"--ipv4-native-routing-cidr=" + podRange, "--ipv6-native-routing-cidr=" + podRange6,
		"--enable-ipv6=" + strconv.FormatBool(tb.dual),
		"--enable-endpoint-health-checking=true",
		"--enable-envoy-config=true", // the address of ingress; it needs no Envoy
	})
}
