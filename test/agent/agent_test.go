package agent

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/delegated-ipam/delegated-ipam/test/ciliumagent"
	"github.com/delegated-ipam/delegated-ipam/test/cluster"
)

// agentAPI returns the client of the agent's API.
func agentAPI() ciliumagent.API { return ciliumagent.API{Socket: agentSocket} }

// defineAgent defines the agent in crd mode, with a compiler in its PATH.
func (tb *testbed) defineAgent(t *testing.T, updateRate time.Duration) {
	t.Helper()
	must(t, os.MkdirAll(tb.path("path"), 0o755))
	must(t, os.Symlink(cluster.MustEnv(t, "AGENT_TEST_CLANG", "agent-test"), tb.path("path", "clang")))
	tb.agent = tb.newAgent(t, "cilium-agent", "cilium-agent",
		"--ipam=crd",
		"--enable-endpoint-health-checking=true",
		"--enable-envoy-config=true", // the address of ingress; it needs no Envoy
		"--ipam-cilium-node-update-rate="+updateRate.String(),
	)
}

// newAgent defines an agent by its name in this test, its program, and flags in addition to the
// common ones, which set the routing, the paths, and limits for a small machine.
func (tb *testbed) newAgent(t *testing.T, name, program string, flags ...string) *cluster.Program {
	t.Helper()
	return tb.newProgram(t, name, tb.agentEnv(nodeName), tb.agentArgs(program, flags...)...)
}

// agentEnv returns the environment of the agent of a node.
func (tb *testbed) agentEnv(node string) []string {
	return []string{
		"PATH=" + tb.path("path") + ":" + tb.binDir() + ":" + os.Getenv("PATH"),
		"K8S_NODE_NAME=" + node,
		"CILIUM_K8S_NAMESPACE=kube-system",
	}
}

// agentArgs returns the command line of an agent.
func (tb *testbed) agentArgs(program string, flags ...string) []string {
	return slices.Concat([]string{
		tb.bin(program),
		"--lib-dir=" + filepath.Join(tb.built, "lib"),
		"--k8s-kubeconfig-path=" + tb.kubeconfig("admin"),
		"--ipv4-native-routing-cidr=10.42.0.0/16", "--ipv6-native-routing-cidr=fd00:42::/64",
		"--enable-ipv6=" + strconv.FormatBool(tb.dual),
	}, ciliumagent.Flags(), flags)
}

// waitHealthy waits until the agent is healthy, and fails the test if it ends.
func (tb *testbed) waitHealthy(t *testing.T, now *cluster.Process) {
	t.Helper()
	cluster.MustEventually(t, "the agent to be healthy", 3*time.Minute, func() error {
		if !now.Running() {
			t.Fatalf("the agent ended; see its log in %s", tb.dir)
		}
		return agentAPI().Healthy(t.Context())
	})
}
