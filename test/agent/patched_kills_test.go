package agent

import (
	"fmt"
	"math/rand/v2"
	"os"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/delegated-ipam/delegated-ipam/test/cluster"
)

// killsDuringStart is the number of random kills while the agent starts.
const killsDuringStart = 12

// The patched agent keeps its addresses, and the plugin's store agrees with the sidecar, after
// SIGKILL of agent and sidecar at any time.
func TestPatchedAgentKills(t *testing.T) {
	tb := newPatchedTestbed(t, dualStack())
	tb.sidecar.MustStart(t)
	tb.waitHealthy(t, tb.agent.MustStart(t))
	own := tb.mustAgentAddresses(t, agentOwners())
	pods := tb.addPods(t, "p", 2)

	for name, killed := range map[string][]*cluster.Program{"agent": {tb.agent}, "sidecar": {tb.sidecar}, "both": {tb.sidecar, tb.agent}} {
		tb.restart(t, killed...)
		tb.waitHealthy(t, tb.agent.Current())
		tb.wantSameAddresses(t, "after SIGKILL of "+name, own, agentOwners(), pods...)
		tb.checkPodsReachable(t, pods)
	}

	seed := chaosSeed(t)
	random := rand.New(rand.NewPCG(seed, 0))
	for n := range killsDuringStart {
		killed := [][]*cluster.Program{{tb.agent}, {tb.sidecar}, {tb.agent, tb.sidecar}}[random.IntN(3)]
		sleep(t.Context(), randomDuration(random, 4*time.Second))
		tb.restart(t, killed...)
		tb.agent.Note(fmt.Sprintf("kill %d of seed %d", n, seed))
		if now := tb.agent.Current(); !now.Running() {
			tb.agent.MustStart(t) // as its supervisor does
		}
	}
	tb.restart(t, tb.agent)
	tb.waitHealthy(t, tb.agent.Current())
	tb.wantSameAddresses(t, fmt.Sprintf("after %d kills during starts, seed %d", killsDuringStart, seed), own, agentOwners(), pods...)
	tb.checkPatchedConnectivity(t, own, pods)

	// Without its state the agent does not know the endpoints of pods.
	for _, p := range pods {
		must(t, tb.dropPod(t.Context(), p))
	}
	tb.agent.End(syscall.SIGKILL)
	must(t, os.RemoveAll("/run/cilium/state"))
	must(t, tb.kube.ciliumNodes().Delete(t.Context(), nodeName, metav1.DeleteOptions{}))
	tb.waitHealthy(t, tb.agent.MustStart(t))
	tb.wantSameAddresses(t, "after the loss of the agent's state", own, agentOwners())
}

// restart kills programs together and starts them again.
func (tb *testbed) restart(t *testing.T, programs ...*cluster.Program) {
	t.Helper()
	for _, p := range programs {
		if now := p.Current(); now.Running() {
			must(t, syscall.Kill(now.PID(), syscall.SIGKILL))
		}
	}
	for _, p := range programs {
		<-p.Current().Done()
		p.MustStart(t)
	}
}

// The sidecar loses its journal while the agent's addresses are in use.
func TestPatchedAgentJournalLost(t *testing.T) {
	tb := newPatchedTestbed(t, dualStack())
	tb.sidecar.MustStart(t)
	tb.waitHealthy(t, tb.agent.MustStart(t))
	own := tb.mustAgentAddresses(t, agentOwners())
	pods := tb.addPods(t, "p", 2)

	tb.sidecar.End(syscall.SIGKILL)
	must(t, os.RemoveAll(tb.path("sidecar")))
	tb.sidecar.MustStart(t)
	tb.restart(t, tb.agent)
	tb.waitHealthy(t, tb.agent.Current())
	tb.wantSameAddresses(t, "after the loss of the journal", own, agentOwners(), pods...)
	tb.checkPatchedConnectivity(t, own, pods)
}
