package e2e

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

func TestConfMissingAtStart(t *testing.T) {
	t.Parallel()
	n := harness.NewNode(t)
	s := n.Launch(t)
	s.WaitServing(t)
	if err := s.Ready(); err == nil {
		t.Error("the sidecar is ready without a configuration")
	}
	a := s.TryAllocate(t, harness.Request{Owner: "router"})
	a.WantError(t, http.StatusBadGateway, n.ConfDir)

	n.WriteNetwork(t, "05-cilium", harness.DualStack())
	s.WaitReady(t)
	s.AllocateFor(t, "router")
	s.WaitConsistent(t)
}

func TestConfDirMissingAtStart(t *testing.T) {
	t.Parallel()
	n := harness.NewNode(t)
	harness.Must(t, os.Remove(n.ConfDir))
	s := n.Launch(t)
	s.WaitServing(t)
	harness.Must(t, os.Mkdir(n.ConfDir, 0o755))
	n.WriteNetwork(t, "05-cilium", harness.DualStack())
	s.WaitReady(t)
	s.AllocateFor(t, "router")
	s.WaitConsistent(t)
}

func TestConfSelection(t *testing.T) {
	t.Parallel()
	const first, second = "10.15.0.0/24", "10.16.0.0/24"
	for name, tt := range map[string]struct{ flag, subnet string }{
		"first with ipam": {"--cni-conf-file=", first},
		"by network name": {"--cni-network=second", second},
		"by file":         {"--cni-conf-file=06-second.conflist", second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := harness.NewNode(t)
			n.WriteConf(t, "01-loopback.conflist", []byte(`{"cniVersion":"1.0.0","name":"lo","plugins":[{"type":"loopback"}]}`))
			n.WriteNetwork(t, "05-first", harness.IPv4Only())
			n.WriteNetwork(t, "06-second", harness.Network{Name: "second", Subnets: []string{second}, CNIVersion: "1.0.0"})
			s := n.Start(t, "--enable-ipv6=false", strings.Replace(tt.flag, "06-second", filepath.Join(n.ConfDir, "06-second"), 1))
			wantInSubnet(t, s.AllocateFor(t, "router")[0], tt.subnet)
		})
	}
}

func TestConfChanged(t *testing.T) {
	t.Parallel()
	n := nodeWith(t, harness.IPv4Only())
	s := n.Start(t, "--verify-interval=0s") // CHECK at every request
	old := s.AllocateFor(t, "old")

	n.WriteNetwork(t, "05-cilium", harness.Network{Name: "pods", Subnets: []string{"10.17.0.0/24"}, CNIVersion: "1.0.0"})
	waitForSubnet(t, s, "10.17.0.")
	wantLeased(t, n, old...) // in use until its owner requests an address
	leases := len(n.Leases(t))
	s.TryRestore(t, old[0], "old").WantStatus(t, http.StatusInternalServerError)
	if a := s.Attachment(t, "old"); a.State != "held" || a.Range != "outside" || a.Addresses[0].IP.String() != old[0] {
		t.Errorf("the list has %+v; want %s held, outside the ranges", a, old)
	}
	n.ResetHistory() // the owner gives up its old address
	moved := s.AllocateFor(t, "old")
	wantInSubnet(t, moved[0], "10.17.0.0/24")
	wantLeased(t, n, moved...)
	wantLeaseCount(t, n, leases) // the old one is released
}

func TestConfBroken(t *testing.T) {
	t.Parallel()
	n := nodeWith(t, harness.IPv4Only())
	s := n.Start(t)
	n.WriteConf(t, "05-cilium.conflist", []byte(`{"cniVersion": "1.0.0", "name": "pods", "plugins": [`))

	harness.Eventually(t, "the broken file to be reported", func() error {
		for _, pool := range s.Health(t).DelegatedIPAM.Pools {
			if strings.Contains(pool.Error, filepath.Join(n.ConfDir, "05-cilium.conflist")) {
				return nil
			}
		}
		return fmt.Errorf("health is %+v", s.Health(t))
	})
	if err := s.Ready(); err != nil {
		t.Errorf("with the last good configuration: %v", err)
	}
	wantInSubnet(t, s.AllocateFor(t, "router")[0], "10.15.0.0/24")
}

// waitForSubnet waits until a new owner gets an address with the prefix: the configuration is
// reloaded asynchronously.
func waitForSubnet(t *testing.T, s *harness.Sidecar, prefix string) {
	t.Helper()
	next := 0
	harness.Eventually(t, "the changed configuration to be used", func() error {
		next++
		if got := s.AllocateFor(t, fmt.Sprintf("new-%d", next)); !strings.HasPrefix(got[0], prefix) {
			return fmt.Errorf("a new owner still gets %q", got)
		}
		return nil
	})
}
