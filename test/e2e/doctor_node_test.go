package e2e

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

func TestDoctorFindsNothingOnAnOrdinaryNodeBeforeAndWhileTheSidecarRuns(t *testing.T) {
	eachNetwork(t, func(t *testing.T, n *harness.Node) {
		d := doctorOf(t, n, nil)
		d.wants(t, []string{"error sidecar"}, "no sidecar can be reached", "what a start would find")
		for _, check := range []string{"options", "place", "socket", "conflist", "plugin", "versions", "netns", "gc", "guard", "plugin-state", "empty-files"} {
			if !d.is(check) {
				t.Errorf("before the start %s is not ok: %+v", check, d.found)
			}
		}
		if entries, err := os.ReadDir(n.Dir); err != nil || len(entries) != 2 {
			t.Errorf("after a look the node has %v, %v; want the two folders of before", entries, err)
		}

		s := n.Start(t)
		s.Allocate(t, harness.Request{Owner: "router"})
		d = doctorInside(t, n)
		d.wants(t, nil)
		for _, check := range []string{"sidecar", "options", "place", "conflist", "versions", "guard", "plugin-state", "leases", "attachments"} {
			if !d.is(check) {
				t.Errorf("%s is not ok or was not looked at: %+v", check, d.found)
			}
		}
	})
}

func TestDoctorFindsASecondSidecarOfTheNetwork(t *testing.T) {
	t.Parallel()
	n := nodeWith(t, harness.DualStack())
	first := n.Start(t)
	doctorOf(t, n, nil, "--socket-path="+n.Dir+"/second.sock", "--state-dir="+n.Dir+"/second").
		wants(t, []string{"error sidecar", "error guard"}, fmt.Sprintf("PID %d", first.PID()), n.StateDir, "--node-name")
}

func TestDoctorDoesNotTakeASidecarThatCannotBeAskedForASecondOne(t *testing.T) {
	t.Parallel()
	n := nodeWith(t, harness.DualStack())
	s := n.Start(t)
	d := doctorOf(t, n, nil, "--socket-path="+n.Dir+"/elsewhere.sock")
	d.wants(t, []string{"error sidecar"})
	if !slices.ContainsFunc(d.found, func(f finding) bool {
		return f.Check == "guard" && strings.Contains(f.Seen, fmt.Sprintf("PID %d", s.PID()))
	}) {
		t.Errorf("no finding names the sidecar that runs: %+v", d.found)
	}
}

func TestDoctorWarnsThatItLooksFromAnotherContainer(t *testing.T) {
	t.Parallel()
	n := nodeWith(t, harness.DualStack())
	n.Start(t)
	doctorInside(t, n, mounted(t, "")...).wants(t, []string{"warning place"}, "another container")
}

func TestDoctorWarnsThatItLooksAsAnotherUserAndNotAsTheSidecars(t *testing.T) {
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
	// The binary under test may be where only root can read it, and its coverage where
	// only root can write it.
	n.Program = filepath.Join(n.Dir, "delegated-ipam")
	err = errors.Join(os.WriteFile(n.Program, data, 0o755), os.Chown(n.Dir, user, user), os.Chmod(n.Dir, 0o711))
	if err != nil {
		t.Fatal(err)
	}
	n.Wrapper = []string{setpriv, fmt.Sprintf("--reuid=%d", user), fmt.Sprintf("--regid=%d", user), "--clear-groups"}
	n.Start(t)
	doctorInside(t, n).wants(t, []string{"warning place"}, fmt.Sprintf("run doctor as user %d", user))
	diagnose(t, n, slices.Concat(n.Wrapper, []string{n.Program, "doctor", "-o", "json", "-H", n.Socket})).wants(t, nil)

	// What host-local made for the pods, as root, the sidecar's user cannot write to.
	store := filepath.Join(n.StoreDir, "pods")
	if err := errors.Join(os.MkdirAll(store, 0o755), os.Chown(store, 0, 0)); err != nil {
		t.Fatal(err)
	}
	diagnose(t, n, slices.Concat(n.Wrapper, []string{n.Program, "doctor", "-o", "json", "-H", n.Socket})).
		wants(t, []string{"error plugin-state"}, store, "permission denied")
}

func TestDoctorFindsWhatHasChangedSinceTheSidecarWasStarted(t *testing.T) {
	t.Parallel()
	n := nodeWith(t, harness.DualStack())
	folder := filepath.Join(n.Dir, "config")
	option := func(value string) {
		if err := os.MkdirAll(folder, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(folder, "owners"), []byte(value), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	option("router")
	n.Env = append(n.Env, "DELEGATED_IPAM_CONFIG_DIR="+folder)
	n.Start(t)
	doctorInside(t, n).wants(t, nil)

	option("router,health")
	doctorInside(t, n).wants(t, []string{"warning options"}, `"router,health" here (config-dir)`, `"router" (config-dir)`, "restart")
	option("router")

	if err := os.Chmod(n.Socket, 0o666); err != nil {
		t.Fatal(err)
	}
	doctorInside(t, n).wants(t, []string{"warning socket"}, "0666")
	if err := os.Chmod(n.Socket, 0o660); err != nil {
		t.Fatal(err)
	}

	n.WriteConf(t, "05-cilium.conflist", []byte(`{"name":`))
	doctorInside(t, n).wants(t, []string{"warning conflist"}, "goes on with", "unexpected end of JSON")
}

func TestDoctorFindsAReleaseThatThePluginRefuses(t *testing.T) {
	t.Parallel()
	n, plugin := scriptedNode(t, "scripted", ranges())
	s := n.Start(t, "--enable-ipv6=false")
	held := s.Allocate(t, harness.Request{Owner: "router"}).Addresses()
	plugin.SetScript(t, "DEL", `{"error":{"code":111,"msg":"no daemon"}}`)
	s.TryRelease(t, held[0]).WantStatus(t, 500)
	doctorInside(t, n).wants(t, []string{"warning attachments"}, "router", "releasing", "no daemon")
	plugin.ClearScript(t, "DEL")
	s.Release(t, held...)
}
