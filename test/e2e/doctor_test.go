package e2e

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

func TestDoctorRepair(t *testing.T) {
	eachNetwork(t, func(t *testing.T, n *harness.Node) {
		s := n.Start(t, hostLocalProgram)
		held := s.Allocate(t, harness.Request{Owner: "router"}).Addresses()
		doctorWithoutOptions(t, n).wantProblems(t, nil)
		blocked := []string{"10.15.0.77", "10.15.0.78"}
		for _, ip := range blocked {
			putLease(t, n, ip, "")
			if a := s.TryRestore(t, ip, "ingress"); a.Status == http.StatusOK {
				t.Errorf("%s was restored although a stale file blocks it", ip)
			}
		}
		doctorWithoutOptions(t, n).wantProblems(t, []string{"warning stale-lease-files 10.15.0.77", "warning stale-lease-files 10.15.0.78"})
		doctorWithoutOptions(t, n, "--repair").wantProblems(t, nil)
		doctorWithoutOptions(t, n).wantProblems(t, nil)
		for i, ip := range blocked {
			s.TryRestore(t, ip, fmt.Sprintf("ingress-%d", i)).WantStatus(t, http.StatusOK)
		}
		wantAddresses(t, s.Allocate(t, harness.Request{Owner: "router"}).Addresses(), held)
	})
}

func TestDoctorLeases(t *testing.T) {
	t.Parallel()
	n := nodeWith(t, harness.DualStack())
	s := n.Start(t, "--verify-interval=0s")
	held := s.Allocate(t, harness.Request{Owner: "router"}).Addresses()
	putLease(t, n, "10.15.0.77", strings.TrimSpace(n.Command(t, "id", "ghost").Stdout)+"\r\neth0")
	for _, ip := range held {
		check.Must(t, os.Remove(storeFile(n, ip)))
	}
	want := []string{"warning leases 10.15.0.77"}
	for _, ip := range held {
		want = append(want, "error leases "+ip)
	}
	doctorWithoutOptions(t, n).wantProblems(t, want)
	doctorWithoutOptions(t, n, "--repair").wantProblems(t, want)

	report := filepath.Join(n.Dir, "leaks.json")
	n.Command(t, "doctor", "--report="+report)
	if out := n.Command(t, "doctor", "--repair", "--report="+report); !strings.Contains(out.Stderr, "released 10.15.0.77 ") {
		t.Errorf("the leak was not released: %s", out.Stderr)
	}
	check.Absent(t, storeFile(n, "10.15.0.77"))
	wantAddresses(t, s.Allocate(t, harness.Request{Owner: "router"}).Addresses(), held)
	doctorWithoutOptions(t, n).wantProblems(t, nil)
}

// storeFile returns the path of the file of an address of the network "pods".
func storeFile(n *harness.Node, ip string) string { return filepath.Join(n.StoreDir, "pods", ip) }

// putLease writes the file of an address as host-local does.
func putLease(t *testing.T, n *harness.Node, ip, content string) {
	t.Helper()
	check.Must(t, os.WriteFile(storeFile(n, ip), []byte(content), 0o600))
}
