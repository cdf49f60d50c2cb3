package agent

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/test/cluster"
	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

// The patched agent keeps its addresses over plugins that neither verify an address nor repeat an
// ADD (docs/reference/plugins.md), through SIGKILL of agent and sidecar.
func TestPatchedAgentAzure(t *testing.T)  { testPatchedPlugin(t, "azure-ipam") }
func TestPatchedAgentCalico(t *testing.T) { testPatchedPlugin(t, "calico-ipam") }

func testPatchedPlugin(t *testing.T, pluginType string) {
	tb := newPatchedTestbed(t, ipv4Only())
	tb.installScripted(t, pluginType)
	tb.sidecar.MustStart(t)
	tb.waitHealthy(t, tb.agent.MustStart(t))
	own := tb.mustAgentAddresses(t, agentOwners())
	pods := tb.addPods(t, "p", 2)
	tb.checkPatchedConnectivity(t, own, pods)

	tb.restart(t, tb.sidecar)
	tb.restart(t, tb.agent)
	tb.waitHealthy(t, tb.agent.Current())
	tb.wantSameAddresses(t, "after SIGKILL", own, agentOwners(), pods...)
	tb.checkPatchedConnectivity(t, own, pods)
	for _, p := range pods {
		must(t, tb.dropPod(t.Context(), p))
	}
	tb.wantSameAddresses(t, "after the pods", own, agentOwners())
}

// installScripted makes sidecar and cilium-cni use the scripted plugin as one of that type.
func (tb *testbed) installScripted(t *testing.T, pluginType string) {
	t.Helper()
	tb.scriptedDir = tb.path("scripted")
	must(t, os.MkdirAll(filepath.Join(tb.scriptedDir, "queue"), 0o755)) // azure-ipam's deleteIDs
	must(t, os.MkdirAll(tb.path("plugins"), 0o755))
	must(t, os.Symlink(cluster.MustEnv(t, harness.EnvScripted, "agent-test"), tb.path("plugins", pluginType)))
	ipam := map[string]any{"type": pluginType, "scriptDir": tb.scriptedDir, "subnet": tb.subnets[0]}
	tb.writeNetwork(t, "net.d", ipam)
	tb.delegatePods(t, ipam)
	tb.pluginDir = tb.path("plugins")
	tb.sidecar = tb.newProgram(t, "scripted-sidecar", nil, tb.sidecarArgs("--owners=router,health,ingress", "--cni-bin-dir="+tb.pluginDir)...)
}
