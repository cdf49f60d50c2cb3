package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

func TestDoctorRepair(t *testing.T) {
	eachNetwork(t, func(t *testing.T, n *harness.Node) {
		s := n.Start(t)
		held := s.Allocate(t, harness.Request{Owner: "router"}).Addresses()
		wantFindings(t, n, 0, nil)
		blocked := []string{"10.15.0.77", "10.15.0.78"}
		for _, ip := range blocked {
			putLease(t, n, ip, "")
			if a := s.TryRestore(t, ip, "ingress"); a.Status == http.StatusOK {
				t.Errorf("%s was restored although a stale file blocks it", ip)
			}
		}
		wantFindings(t, n, 3, []string{"warning stale-lease-files 10.15.0.77", "warning stale-lease-files 10.15.0.78"})
		wantFindings(t, n, 0, nil, "--repair")
		wantFindings(t, n, 0, nil)
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
		if err := os.Remove(storeFile(n, ip)); err != nil {
			t.Fatal(err)
		}
	}
	want := []string{"warning leases 10.15.0.77"}
	for _, ip := range held {
		want = append(want, "error leases "+ip)
	}
	wantFindings(t, n, 1, want)
	wantFindings(t, n, 1, want, "--repair")

	s.Release(t, s.Allocate(t, harness.Request{Owner: "ghost"}).Addresses()...)
	wantAddresses(t, s.Allocate(t, harness.Request{Owner: "router"}).Addresses(), held)
	wantFindings(t, n, 0, nil)
}

func TestDoctorSidecar(t *testing.T) {
	t.Parallel()
	n := harness.NewNode(t)
	wantFindings(t, n, 1, []string{"error sidecar ", "error cni-config "})
	n.Launch(t).WaitServing(t)
	o := n.Command(t, "doctor")
	for _, text := range []string{"not ready:", n.ConfDir, "write the CNI configuration"} {
		if o.ExitCode != 1 || !strings.Contains(o.Stdout, text) {
			t.Errorf("exit status %d, output %q; want 1 and %q", o.ExitCode, o.Stdout, text)
		}
	}
}

// storeFile returns the path of the file of an address of the network "pods".
func storeFile(n *harness.Node, ip string) string { return filepath.Join(n.StoreDir, "pods", ip) }

// putLease writes the file of an address as host-local does.
func putLease(t *testing.T, n *harness.Node, ip, content string) {
	t.Helper()
	if err := os.WriteFile(storeFile(n, ip), []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

// wantFindings runs `doctor` and checks its exit status and its problems.
func wantFindings(t *testing.T, n *harness.Node, code int, want []string, flags ...string) {
	t.Helper()
	o := n.Command(t, append([]string{"doctor", "-o", "json"}, flags...)...)
	var found, ofNode []finding
	if err := json.Unmarshal([]byte(o.Stdout), &found); err != nil || len(found) == 0 {
		t.Fatalf("stdout %q, stderr %q: %v; want findings", o.Stdout, o.Stderr, err)
	}
	var got []string
	for _, f := range found {
		if f.State != "ok" && len((diagnosis{found: []finding{f}}).problems()) > 0 {
			ofNode = append(ofNode, f)
			got = append(got, f.State+" "+f.Check+" "+f.Address)
		}
	}
	if o.ExitCode != exitStatus(found) || exitStatus(ofNode) != code || !slices.Equal(got, want) {
		t.Errorf("doctor %q: exit status %d, problems %q; want %d and %q", flags, o.ExitCode, got, code, want)
	}
}
