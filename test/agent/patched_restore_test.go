package agent

import (
	"os"
	"syscall"
	"testing"
)

// Without journal and store the sidecar has only the agent's requests for its old addresses, one
// family after the other. Both families stay, because each request names the address of the other.
// Pods have the first addresses of the range, so an ADD without a request returns other ones.
func TestPatchedAgentStoreLost(t *testing.T) {
	tb := newPatchedTestbed(t, dualStack())
	stock := tb.newStockAgent(t)
	tb.waitHealthy(t, stock.MustStart(t))
	pods := tb.addPods(t, "p", 2)
	stock.End(syscall.SIGTERM)
	tb.sidecar.MustStart(t)
	tb.waitHealthy(t, tb.agent.MustStart(t))
	own := tb.mustAgentAddresses(t, agentOwners(), pods...)

	for _, p := range pods {
		must(t, tb.dropPod(t.Context(), p))
	}
	tb.agent.End(syscall.SIGKILL)
	tb.sidecar.End(syscall.SIGKILL)
	must(t, os.RemoveAll(tb.path("sidecar")))
	must(t, os.RemoveAll(tb.path("host-local")))
	tb.sidecar.MustStart(t)
	tb.waitHealthy(t, tb.agent.MustStart(t))
	tb.wantSameAddresses(t, "after the loss of journal and store", own, agentOwners())
}
