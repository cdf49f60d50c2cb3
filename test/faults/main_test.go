// Package faults injects faults of disks, plugins and processes into the real binary and then
// checks the state with the oracle (docs/design/reliability.md).
package faults

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/internal/failpoint"
	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }

func TestShippedBinaryHasNoFailpoints(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "delegated-ipam")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-buildvcs=false", "-o", path, "../../cmd/delegated-ipam")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", cmd, err, out)
	}
	shipped, err := os.ReadFile(path)
	check.Must(t, err)
	other, err := os.ReadFile(harness.Failpoints(t))
	check.Must(t, err)
	for _, name := range append(failpoint.All(), failpoint.EnvPlan) {
		if bytes.Contains(shipped, []byte(name)) || !bytes.Contains(other, []byte(name)) {
			t.Errorf("%q is in the shipped binary, or missing in the one with failpoints", name)
		}
	}
}

// needRoot skips a test that acts as another user.
func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		harness.Skipf(t, "only root can act as another user")
	}
}

// needProgram returns the path of a program, without which the test is skipped.
func needProgram(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		harness.Skipf(t, "%v; it is part of util-linux", err)
	}
	return path
}

// nodeWith returns a node with a dual-stack network of the real host-local.
func nodeWith(t testing.TB) *harness.Node {
	t.Helper()
	n := harness.NewNode(t)
	n.WriteNetwork(t, "05-cilium", harness.DualStack())
	return n
}

// stoppedNode returns a node whose stopped daemon holds addresses of two owners.
func stoppedNode(t *testing.T) (n *harness.Node, router, health []string) {
	t.Helper()
	n = nodeWith(t)
	s := n.Start(t)
	router, health = s.AllocateFor(t, "router"), s.AllocateFor(t, "health")
	s.Stop(t)
	return n, router, health
}

// wantHeld wants an allocate of an owner to return the addresses that it holds.
func wantHeld(t *testing.T, s *harness.Daemon, owner string, want []string) {
	t.Helper()
	if got := s.AllocateFor(t, owner); !slices.Equal(got, want) {
		t.Errorf("%s has %q; want %q as before", owner, got, want)
	}
}

// wantNotGiven wants an owner to get none of the addresses of another one.
func wantNotGiven(t *testing.T, s *harness.Daemon, owner string, held []string) {
	t.Helper()
	for _, ip := range s.AllocateFor(t, owner) {
		if slices.Contains(held, ip) {
			t.Errorf("%s is held and was allocated to %s", ip, owner)
		}
	}
}

// wantQuarantined wants health to report a quarantined record for a reason, or none without a reason.
func wantQuarantined(t *testing.T, s *harness.Daemon, reason string) {
	t.Helper()
	got := s.Health(t).DelegatedIPAM.Quarantined
	if reason == "" && len(got) > 0 || reason != "" && (len(got) != 1 || !strings.Contains(got[0].Reason, reason)) {
		t.Errorf("health has the quarantined records %+v; want one with the reason %q, or none without", got, reason)
	}
}
