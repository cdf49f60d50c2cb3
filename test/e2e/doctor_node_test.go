package e2e

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

func TestDoctorNoProblems(t *testing.T) {
	eachNetwork(t, func(t *testing.T, n *harness.Node) {
		d := doctorWithOptions(t, n, nil)
		d.wantProblems(t, []string{"error sidecar"}, "no sidecar can be reached", "those of a new start")
		for _, check := range []string{"options", "environment", "socket", "cni-config", "plugin", "cni-versions", "runtime-gc", "node-lock", "netns", "plugin-state", "store", "stale-lease-files"} {
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
		for _, check := range []string{"sidecar", "options", "environment", "cni-config", "cni-versions", "node-lock", "plugin-state", "leases", "attachments"} {
			if !d.passed(check) {
				t.Errorf("%s is not ok or was skipped: %+v", check, d.found)
			}
		}
	})
}

func TestDoctorNodeLock(t *testing.T) {
	t.Parallel()
	n := nodeWith(t, harness.DualStack())
	first := n.Start(t)
	doctorWithOptions(t, n, nil, "--socket-path="+n.Dir+"/second.sock", "--state-dir="+n.Dir+"/second").
		wantProblems(t, []string{"error sidecar", "error node-lock"}, fmt.Sprintf("PID %d", first.PID()), n.StateDir, "--node-name")
}

// The sidecar of the same state directory is not a second one, even if its socket is unknown.
func TestDoctorOwnNodeLock(t *testing.T) {
	t.Parallel()
	n := nodeWith(t, harness.DualStack())
	s := n.Start(t)
	d := doctorWithOptions(t, n, nil, "--socket-path="+n.Dir+"/elsewhere.sock")
	d.wantProblems(t, []string{"error sidecar"})
	if !slices.ContainsFunc(d.found, func(f finding) bool {
		return f.Check == "node-lock" && strings.Contains(f.Message, fmt.Sprintf("PID %d", s.PID()))
	}) {
		t.Errorf("no finding names the running sidecar: %+v", d.found)
	}
}

func TestDoctorOtherContainer(t *testing.T) {
	t.Parallel()
	n := nodeWith(t, harness.DualStack())
	n.Start(t)
	doctorWithoutOptions(t, n, privateMounts(t, "")...).wantProblems(t, []string{"warning environment"}, "another container")
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
	if err != nil {
		t.Fatal(err)
	}
	// The binary may be in a directory that only root can read, and its coverage in one that
	// only root can write.
	n.Program = filepath.Join(n.Dir, "delegated-ipam")
	harness.WriteProgram(t, n.Program, data)
	err = errors.Join(os.Chown(n.Dir, user, user), os.Chmod(n.Dir, 0o711))
	if err != nil {
		t.Fatal(err)
	}
	n.Wrapper = []string{setpriv, fmt.Sprintf("--reuid=%d", user), fmt.Sprintf("--regid=%d", user), "--clear-groups"}
	n.Start(t)
	doctorWithoutOptions(t, n).wantProblems(t, []string{"warning environment"}, fmt.Sprintf("run doctor as user %d", user))
	diagnose(t, n, slices.Concat(n.Wrapper, []string{n.Program, "doctor", "-o", "json", "-H", n.Socket})).wantProblems(t, nil)

	// The sidecar's user cannot write to a directory that host-local created as root.
	store := filepath.Join(n.StoreDir, "pods")
	if err := errors.Join(os.MkdirAll(store, 0o755), os.Chown(store, 0, 0)); err != nil {
		t.Fatal(err)
	}
	diagnose(t, n, slices.Concat(n.Wrapper, []string{n.Program, "doctor", "-o", "json", "-H", n.Socket})).
		wantProblems(t, []string{"error plugin-state"}, store, "permission denied")
}

func TestDoctorChanges(t *testing.T) {
	t.Parallel()
	n := nodeWith(t, harness.DualStack())
	directory := filepath.Join(n.Dir, "config")
	option := func(value string) {
		if err := os.MkdirAll(directory, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(directory, "owners"), []byte(value), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	option("router")
	n.Env = append(n.Env, "DELEGATED_IPAM_CONFIG_DIR="+directory)
	n.Start(t)
	doctorWithoutOptions(t, n).wantProblems(t, nil)

	option("router,health")
	doctorWithoutOptions(t, n).wantProblems(t, []string{"warning options"}, `"router,health" here (config-dir)`, `"router" (config-dir)`, "restart")
	option("router")

	if err := os.Chmod(n.Socket, 0o666); err != nil {
		t.Fatal(err)
	}
	doctorWithoutOptions(t, n).wantProblems(t, []string{"warning socket"}, "0666")
	if err := os.Chmod(n.Socket, 0o660); err != nil {
		t.Fatal(err)
	}

	n.WriteConf(t, "05-cilium.conflist", []byte(`{"name":`))
	doctorWithoutOptions(t, n).wantProblems(t, []string{"warning cni-config"}, "continues with", "unexpected end of JSON")
}

func TestDoctorFailedRelease(t *testing.T) {
	t.Parallel()
	n, plugin := scriptedNode(t, "scripted", ranges())
	s := n.Start(t, "--enable-ipv6=false")
	held := s.Allocate(t, harness.Request{Owner: "router"}).Addresses()
	plugin.SetScript(t, "DEL", `{"error":{"code":111,"msg":"no daemon"}}`)
	s.TryRelease(t, held[0]).WantStatus(t, 500)
	doctorWithoutOptions(t, n).wantProblems(t, []string{"warning attachments"}, "router", "releasing", "no daemon")
	plugin.ClearScript(t, "DEL")
	// The sidecar may have repeated the DEL already.
	if got := s.TryRelease(t, held[0]); got.Status != http.StatusNotFound {
		got.WantStatus(t, http.StatusOK)
	}
}
