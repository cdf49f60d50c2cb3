package e2e

import (
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

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

// A FIFO before the configuration would block the start.
//
//evidence:operate/security a FIFO, device, or 5 GiB as option, profile or CNI configuration
func TestConfIsPipe(t *testing.T) {
	t.Parallel()
	n := nodeWith(t, harness.DualStack())
	check.Must(t, unix.Mkfifo(filepath.Join(n.ConfDir, "00-first.conflist"), 0o600))
	n.Start(t).AllocateFor(t, "router")
}

// waitForSubnet waits until a new owner gets an address with the prefix: the configuration is
// reloaded asynchronously.
func waitForSubnet(t *testing.T, s *harness.Daemon, prefix string) {
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
