package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

// finding is one element of `doctor -o json`.
type finding struct{ Check, Pool, Address, State, Message, Remedy string }

// diagnosis is the result of `doctor`.
type diagnosis struct{ found []finding }

// doctorWithOptions runs `doctor` with the options of the node's daemon, which does not
// run. The command under precedes the program.
func doctorWithOptions(t *testing.T, n *harness.Node, under []string, flags ...string) diagnosis {
	t.Helper()
	args := slices.Concat(under, []string{harness.Binary(t), "doctor", "-o", "json"}, n.ServeArgs(flags...)[1:])
	return diagnose(t, n, args)
}

// doctorWithoutOptions runs `doctor` for the socket of the node's daemon with flags only.
func doctorWithoutOptions(t *testing.T, n *harness.Node, flags ...string) diagnosis {
	t.Helper()
	return diagnose(t, n, append([]string{harness.Binary(t), "doctor", "-o", "json"}, flags...))
}

func diagnose(t *testing.T, n *harness.Node, args []string) diagnosis {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), args[0], args[1:]...)
	cmd.Dir, cmd.Env = n.Dir, append(n.Environment(), "CILIUM_SOCK="+n.Socket)
	stdout, err := cmd.Output()
	if cmd.ProcessState == nil {
		t.Fatalf("%s: %v", cmd, err)
	}
	var d diagnosis
	if err := json.Unmarshal(stdout, &d.found); err != nil {
		t.Fatalf("%s printed %q: %v", cmd, stdout, err)
	}
	if got, want := cmd.ProcessState.ExitCode(), exitStatus(d.found); got != want {
		t.Errorf("%s: exit status %d; want %d for its findings: %+v", cmd, got, want, d.found)
	}
	return d
}

// exitStatus returns the exit status for findings.
func exitStatus(all []finding) int {
	status := 0
	for _, f := range all {
		switch f.State {
		case "error":
			return 1
		case "warning":
			status = 3
		}
	}
	return status
}

// problems returns state, check and address of each finding that is not ok. Those that depend on the
// machine of the test, on its temporary directory, are left out unless expected.
func (d diagnosis) problems(expected ...string) []string {
	var all []string
	for _, f := range d.found {
		ofMachine := slices.Contains([]string{"state-dir", "disk-space"}, f.Check) && !slices.Contains(expected, f.Check)
		if f.State != "ok" && !ofMachine {
			all = append(all, strings.TrimSpace(f.State+" "+f.Check+" "+f.Address))
		}
	}
	return all
}

// wantProblems checks the problems, and that one of them contains each of the texts.
func (d diagnosis) wantProblems(t *testing.T, want []string, texts ...string) {
	t.Helper()
	var checks []string
	for _, w := range want {
		checks = append(checks, strings.Fields(w)[1])
	}
	if got := d.problems(checks...); !slices.Equal(got, want) {
		t.Errorf("found %q; want %q; all: %+v", got, want, d.found)
	}
	for _, text := range texts {
		if !slices.ContainsFunc(d.found, func(f finding) bool {
			return f.State != "ok" && strings.Contains(f.Message+" "+f.Remedy, text)
		}) {
			t.Errorf("no problem contains %q: %+v", text, d.found)
		}
	}
}

// passed reports whether a check ran and each of its findings is ok.
func (d diagnosis) passed(check string) bool {
	seen := false
	for _, f := range d.found {
		if f.Check == check && f.State != "ok" {
			return false
		}
		seen = seen || f.Check == check
	}
	return seen
}

// privateMounts returns a command that runs another one in a private mount namespace, after
// a shell script.
func privateMounts(t *testing.T, lines string) []string {
	t.Helper()
	if err := exec.Command("unshare", "-m", "true").Run(); err != nil {
		harness.Skipf(t, "no mount namespace can be created here (root and unshare are needed): %v", err)
	}
	return []string{"unshare", "-m", "sh", "-ec", lines + "\nexec \"$@\"", "sh"}
}

// Faults of a node on which the daemon does not run, as doctor reports them.
func TestDoctorBeforeStart(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		// mount is a shell script for a private mount namespace, with the state directory in $STATE, the
		// plugin's in $STORE and that of the plugins in $BIN.
		mount string
		make  func(n *harness.Node)
		// want are the states and checks of the problems besides "error daemon", and contains texts of
		// their messages and remedies.
		want, contains []string
	}{
		"plugin directory in the container": {
			mount: ":",
			make: func(n *harness.Node) {
				n.Env = append(n.Env, "KUBERNETES_SERVICE_HOST=10.96.0.1")
				n.StoreDir = "/" + filepath.Base(n.Dir) + "-leases"
			},
			want: []string{"error plugin"}, contains: []string{"-leases", "the same addresses", "mounted"},
		},
		"state directory almost full": {
			mount: `mount -t tmpfs -o size=64k none $STATE`,
			want:  []string{"error state-dir", "error disk-space"}, contains: []string{"64 KiB", "free space"},
		},
		"read-only state directory": {
			mount: `mount --bind $STATE $STATE; mount -o remount,bind,ro $STATE`,
			want:  []string{"error state-dir"}, contains: []string{"mounted read-only"},
		},
		"read-only plugin directory": {
			mount: `mount --bind $STORE $STORE; mount -o remount,bind,ro $STORE`,
			want:  []string{"error plugin-state"}, contains: []string{"mounted read-only", "ipam.dataDir"},
		},
		"noexec plugins": {
			mount: `mount --bind $BIN $BIN; mount -o remount,bind,noexec $BIN`,
			make:  func(n *harness.Node) { n.Flags = append(n.Flags, hostLocalProgram) },
			want:  []string{"error plugin"}, contains: []string{"permission denied", "without noexec"},
		},
		"plugin directory from another path": {
			mount: `mount -t tmpfs none ${STORE%/y}; cd ${STORE%/y}; mkdir x y; mount --bind x y`,
			make: func(n *harness.Node) {
				n.Env = append(n.Env, "KUBERNETES_SERVICE_HOST=10.96.0.1")
				n.StoreDir = filepath.Join(n.StoreDir, "y")
			},
			want: []string{"warning plugin-state"}, contains: []string{`"/x"`, "same directory"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := harness.NewNode(t)
			n.Env = append(n.Env, "STATE="+n.StateDir, "STORE="+n.StoreDir, "BIN="+n.BinDir)
			check.Must(t, errors.Join(os.Mkdir(n.StateDir, 0o700), os.Mkdir(n.StoreDir, 0o700)))
			if c.make != nil {
				c.make(n)
			}
			n.WriteNetwork(t, "05-cilium", harness.DualStack())
			doctorWithOptions(t, n, privateMounts(t, c.mount)).wantProblems(t, append([]string{"error daemon"}, c.want...), c.contains...)
		})
	}
}

// hostLocalProgram runs the program, as of every other plugin.
const hostLocalProgram = "--host-local=program"

func removePlugin(t *testing.T, n *harness.Node) {
	t.Helper()
	check.Must(t, os.Remove(filepath.Join(n.BinDir, "host-local")))
}

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
