package e2e

import (
	"net/http"
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

func TestPluginOfHeldMissing(t *testing.T) {
	t.Parallel()
	n := nodeWith(t, harness.IPv4Only())
	n.Flags = append(n.Flags, "--enable-ipv6=false", hostLocalProgram)
	s := n.Start(t)
	held := s.AllocateFor(t, "router")
	s.Stop(t)
	// The network now has another plugin, so only the attachment needs host-local.
	removePlugin(t, n)
	n.InstallPlugin(t, "static")
	n.WriteNetwork(t, "05-cilium", harness.Network{Name: "pods", CNIVersion: "1.0.0", Plugin: "static", IPAM: map[string]any{
		"addresses": []map[string]string{{"address": "10.15.0.9/24"}},
	}})

	s = n.Launch(t)
	s.WaitServing(t)
	s.WaitNotReady(t, "host-local", n.BinDir, "--cni-bin-dir")
	if o := n.Command(t, "probe", "ready", "--timeout=1m"); o.ExitCode != 1 || !strings.Contains(o.Stderr, "host-local") {
		t.Errorf("probe ready ended with %d: %s", o.ExitCode, o.Stderr)
	}
	doctorWithoutOptions(t, n).wantProblems(t, []string{"error daemon"}, "host-local")

	n.InstallPlugin(t, "host-local")
	s.WaitReady(t)
	s.TryRelease(t, held[0]).WantStatus(t, http.StatusOK)
	wantLeased(t, n)
}
