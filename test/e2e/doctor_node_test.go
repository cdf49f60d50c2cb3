package e2e

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

func TestDoctorNoProblems(t *testing.T) {
	eachNetwork(t, func(t *testing.T, n *harness.Node) {
		d := doctorWithOptions(t, n, nil)
		d.wantProblems(t, []string{"error daemon"}, "no daemon can be reached", "those of a new start")
		for _, check := range []string{"options", "environment", "socket", "cni-config", "plugin", "runtime-gc", "plugin-files", "plugin-state", "store", "stale-lease-files"} {
			if !d.passed(check) {
				t.Errorf("before the start: %s is not ok: %+v", check, d.found)
			}
		}
		if entries, err := os.ReadDir(n.Dir); err != nil || len(entries) != 2 {
			t.Errorf("after doctor the node has %v, %v; want the two directories as before", entries, err)
		}

		s := n.Start(t)
		s.Allocate(t, harness.Request{Owner: "router"})
		d = doctorWithoutOptions(t, n)
		d.wantProblems(t, nil)
		for _, check := range []string{"daemon", "options", "environment", "cni-config", "plugin", "plugin-state", "leases", "attachments"} {
			if !d.passed(check) {
				t.Errorf("%s is not ok or was skipped: %+v", check, d.found)
			}
		}
	})
}

func TestDoctorOtherContainer(t *testing.T) {
	t.Parallel()
	n := nodeWith(t, harness.DualStack())
	n.Start(t)
	diagnose(t, n, append(privateMounts(t, ""), harness.Binary(t), "doctor", "-o", "json")).wantProblems(t, []string{"warning environment"}, "another container")
}

func TestDoctorOtherUser(t *testing.T) {
	t.Parallel()
	setpriv, err := exec.LookPath("setpriv")
	if os.Geteuid() != 0 || err != nil {
		harness.Skipf(t, "root and setpriv (util-linux) are needed to run as another user: %v", err)
	}
	const user = 54321
	n := nodeWith(t, harness.DualStack())
	data, err := os.ReadFile(harness.Failpoints(t))
	check.Must(t, err)
	// The binary may be in a directory that only root can read, and its coverage in one that
	// only root can write.
	n.Program = filepath.Join(n.Dir, "delegated-ipam")
	harness.WriteProgram(t, n.Program, data)
	check.Must(t, errors.Join(os.Chown(n.Dir, user, user), os.Chmod(n.Dir, 0o711)))
	n.Wrapper = []string{setpriv, fmt.Sprintf("--reuid=%d", user), fmt.Sprintf("--regid=%d", user), "--clear-groups"}
	n.Start(t)
	doctorWithoutOptions(t, n).wantProblems(t, []string{"warning environment"}, fmt.Sprintf("run doctor as user %d", user))
	line := append(n.Wrapper, n.Program, "doctor", "-o", "json")
	diagnose(t, n, line).wantProblems(t, nil)

	// The daemon's user cannot write to a directory that host-local created as root.
	store := filepath.Join(n.StoreDir, "pods")
	check.Must(t, errors.Join(os.MkdirAll(store, 0o755), os.Chown(store, 0, 0)))
	diagnose(t, n, line).wantProblems(t, []string{"error plugin-state"}, store, "permission denied")
}
