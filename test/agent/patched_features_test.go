package agent

import (
	"os/exec"
	"syscall"
	"testing"
)

// A feature that is switched off leaves its address held; the command of docs/install/cilium-agent.md releases it.
func TestPatchedAgentFeaturesOff(t *testing.T) {
	tb := newPatchedTestbed(t, dualStack())
	tb.sidecar.MustStart(t)
	tb.waitHealthy(t, tb.agent.MustStart(t))
	own := tb.mustAgentAddresses(t, agentOwners())

	tb.agent.End(syscall.SIGTERM)
	without := tb.newPatchedAgent(t, "agent-without-features", "--enable-endpoint-health-checking=false", "--enable-envoy-config=false")
	tb.waitHealthy(t, without.MustStart(t))
	if out, err := exec.Command(tb.ownProgram("delegated-ipam"), "gc", "--host=unix://"+sidecarSocket, "--owner=health,ingress", "--yes").CombinedOutput(); err != nil {
		t.Fatalf("gc: %v: %s", err, out)
	}
	tb.wantSameAddresses(t, "without health and ingress", own, []string{"router"})

	without.End(syscall.SIGTERM)
	tb.waitHealthy(t, tb.agent.MustStart(t))
	now := tb.mustAgentAddresses(t, agentOwners())
	tb.checkPatchedConnectivity(t, now, nil)
}

// The agent sends the name of its default pool with each request.
func TestPatchedAgentPool(t *testing.T) {
	tb := newPatchedTestbed(t, ipv4Only())
	tb.sidecar = tb.newProgram(t, "blue-sidecar", nil, tb.sidecarArgs("--owners=router,health,ingress", "--ipam-default-ip-pool=blue")...)
	tb.sidecar.MustStart(t)
	tb.agent = tb.newPatchedAgent(t, "blue-agent", "--ipam-default-ip-pool=blue")
	tb.waitHealthy(t, tb.agent.MustStart(t))
	tb.mustAgentAddresses(t, agentOwners())
	listed, err := listAttachments()
	must(t, err)
	for _, a := range listed {
		if a.Pool != "blue" {
			t.Errorf("%s is in pool %q; want blue", a.Owner, a.Pool)
		}
	}
}
