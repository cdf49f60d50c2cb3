package e2e

import (
	"net/http"
	"strings"
	"testing"
)

// The log, the last error and errors about a container have the runtime's container ID: no other one is
// used for it.
func TestContainerIDOfRuntime(t *testing.T) {
	t.Parallel()
	n, plugin := scriptedContainers(t, nil)
	s := n.Start(t, "--log-level=debug")
	failed, added := container{"5f1e", "eth0"}, container{"0a1b", "eth0"}
	plugin.SetScript(t, "ADD", `{"error":{"code":100,"msg":"no address left"}}`)
	cni(t, s, "add", failed.request()).WantError(t, http.StatusBadGateway, "no address left")
	plugin.ClearScript(t, "ADD")
	addContainer(t, s, added)
	cni(t, s, "del", added.request()).WantStatus(t, http.StatusOK)
	wantNoAttachment(t, s, added.owner())
	// Without a record.
	cni(t, s, "del", container{"77cc", "eth0"}.request()).WantStatus(t, http.StatusOK)
	// Released in the background.
	late := container{"3b3b", "eth0"}
	addContainer(t, s, late)
	plugin.SetScript(t, "DEL", `{"error":{"code":11,"msg":"locked"}}`)
	cni(t, s, "del", late.request()).WantError(t, http.StatusBadGateway, "locked")
	plugin.ClearScript(t, "DEL")
	waitReleased(t, s, late.owner())
	for line := range strings.Lines(s.Log()) {
		if strings.Contains(line, "cilium-agent-") {
			t.Errorf("the log has an ID that was not used: %s", line)
		}
	}
	for _, c := range []container{failed, added} {
		s.WaitLog(t, "containerID="+c.id, "owner="+c.owner())
	}
	if out := n.Command(t, "status", "-o=json"); strings.Contains(out.Stdout, "cilium-agent-") {
		t.Errorf("the status has an ID that was not used: %s", out.Stdout)
	}
}
