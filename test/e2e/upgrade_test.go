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

// envPrevious names an earlier build of delegated-ipam, without which TestPreviousBuild is skipped
// ("make test-upgrade" builds one).
const envPrevious = "DELEGATED_IPAM_TEST_PREVIOUS"

// TestUpgrade starts the sidecar with the journals that earlier builds wrote, over host-local's store
// as it was.
//
//evidence:reference/versioning upgrade from an earlier build
func TestUpgrade(t *testing.T) {
	t.Parallel()
	journals, err := filepath.Glob("../../internal/sidecar/journal/testdata/versions/[0-9]*-*")
	harness.Must(t, err)
	if len(journals) == 0 {
		t.Fatal("found no journal of an earlier build")
	}
	for _, from := range journals {
		t.Run(filepath.Base(from), func(t *testing.T) {
			t.Parallel()
			n := harness.NewNode(t)
			n.WriteNetwork(t, "05-cilium", harness.Network{Name: "pods", Subnets: []string{"10.15.0.0/24", "fd00:15::/64"}, CNIVersion: "1.0.0"})
			moveJournal(t, n, from)
			s := n.Start(t)
			for _, owner := range []string{"ingress", "default/web-0", "default/web-1"} {
				waitReleased(t, s, owner)
			}
			if got := s.Health(t).DelegatedIPAM.Quarantined; len(got) != 0 {
				t.Errorf("health has the quarantined records %+v; want none", got)
			}
			wantAddresses(t, s.AllocateFor(t, "router"), []string{"10.15.0.2", "fd00:15::2"})
			wantState(t, s, "health", "held")
			wantLeased(t, n, "10.15.0.2", "fd00:15::2", "10.15.0.3", "fd00:15::3")
			wantLeaseCount(t, n, 4)
			wantCommand(t, n, command{line: "release --all --yes"})
			wantLeaseCount(t, n, 0)
		})
	}
}

// moveJournal copies the records over host-local to a node, with its directories and with elapsed
// deadlines, and writes their leases.
func moveJournal(t *testing.T, n *harness.Node, from string) {
	t.Helper()
	attachments := filepath.Join(n.StateDir, "attachments")
	harness.Must(t, os.CopyFS(attachments, os.DirFS(filepath.Join(from, "attachments"))))
	remote, err := filepath.Glob(filepath.Join(attachments, "cilium-agent-remote-*"))
	harness.Must(t, err)
	for _, path := range remote {
		harness.Must(t, os.Remove(path))
	}
	boot, err := os.ReadFile(harness.BootIDFile)
	harness.Must(t, err)
	leases := filepath.Join(n.StoreDir, "pods")
	harness.Must(t, os.MkdirAll(leases, 0o755))
	const elapsed = "2026-01-01T00:00:00Z"
	n.EditRecords(t, func(r map[string]any) {
		r["machineID"], r["bootID"] = "", strings.TrimSpace(string(boot))
		if _, ok := r["releaseAt"]; ok {
			r["releaseAt"] = elapsed
		}
		if expiration, ok := r["expiration"].(map[string]any); ok {
			expiration["deadline"] = elapsed
		}
		for _, address := range r["result"].(map[string]any)["addresses"].([]any) {
			ip, _, _ := strings.Cut(address.(map[string]any)["prefix"].(string), "/")
			harness.Must(t, os.WriteFile(filepath.Join(leases, ip), fmt.Appendf(nil, "%s\r\neth0", r["containerID"]), 0o600))
		}
		invocations, ok := r["invocations"].([]any)
		if !ok {
			invocations = r["contexts"].([]any)
		}
		for _, i := range invocations {
			inv := i.(map[string]any)
			inv["binary"], inv["path"] = filepath.Join(n.BinDir, "host-local"), n.BinDir
			inv["config"].(map[string]any)["ipam"].(map[string]any)["dataDir"] = n.StoreDir
		}
	})
}

// TestPreviousBuild goes from an earlier build to this one, back, and forward again.
//
//evidence:reference/versioning upgrade from an earlier build
func TestPreviousBuild(t *testing.T) {
	previous := os.Getenv(envPrevious)
	if previous == "" {
		t.Skipf("$%s names no earlier build; make test-upgrade FROM=REVISION builds one", envPrevious)
	}
	n := nodeWith(t, harness.DualStack())
	n.Program = previous
	s := n.Start(t)
	router, health := s.AllocateFor(t, "router"), s.AllocateFor(t, "health")
	s.Stop(t)

	n.Program = ""
	s = n.Start(t)
	wantAddresses(t, s.AllocateFor(t, "router"), router)
	s.Release(t, health...)
	ingress := s.AllocateFor(t, "ingress")
	s.Stop(t)

	// A record that this build has written is served, or refused and left where it is.
	n.Program = previous
	s = n.Start(t)
	for owner, held := range map[string][]string{"router": router, "ingress": ingress} {
		if r := s.TryAllocate(t, harness.Request{Owner: owner}); r.Status == http.StatusCreated {
			wantAddresses(t, s.AllocateFor(t, owner), held)
		} else if !strings.Contains(string(r.Body), "newer") {
			t.Errorf("%s: status %d: %s; want %d, or that only a newer build understands the record", owner, r.Status, r.Body, http.StatusCreated)
		}
	}
	wantLeased(t, n, append(router, ingress...)...)
	s.Stop(t)
	if put, err := filepath.Glob(filepath.Join(n.StateDir, "quarantine", "*")); err != nil || len(put) > 0 {
		t.Errorf("the earlier build has quarantined %q, %v; want nothing", put, err)
	}

	n.Program = ""
	s = n.Start(t)
	wantAddresses(t, s.AllocateFor(t, "router"), router)
	wantAddresses(t, s.AllocateFor(t, "ingress"), ingress)
}
