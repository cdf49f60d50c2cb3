package faults

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/internal/failpoint"
	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
	"github.com/delegated-ipam/delegated-ipam/test/harness"
	"github.com/delegated-ipam/delegated-ipam/test/oracle"
)

// killUninstall kills uninstall at each visit; another run completes it, or a daemon starts with the rest.
func killUninstall(t *testing.T) {
	st := newStats(t, uninstallKilled)
	f := released(t)
	f.setPlan(failpoint.Plan{})
	f.wantUninstalled()
	visits := f.visits()
	for _, p := range []failpoint.Point{failpoint.UninstallRemoving, failpoint.UninstallRemoved} {
		if !slices.Contains(visits, p) {
			t.Errorf("uninstall does not visit the failpoint %q", p)
		}
	}
	type uninstallCase struct {
		plan failpoint.Plan
		next string
	}
	var all []uninstallCase
	for _, plan := range plansOf(visits) {
		all = append(all, uninstallCase{plan, "uninstall"}, uninstallCase{plan, "serve"})
	}
	for _, c := range selectCases(t, all, func(c uninstallCase) string { return string(c.plan.Point) + c.next }) {
		t.Run(c.plan.String()+" then "+c.next, func(t *testing.T) {
			t.Parallel()
			st.countCases(t, 1)
			f := released(t)
			f.setPlan(c.plan)
			if out, err := f.uninstall(); err == nil || err.Error() != "signal: killed" {
				t.Fatalf("uninstall was not killed: %v\n%s", err, out)
			}
			st.kills.Add(1)
			f.clearPlan()
			if c.next == "uninstall" {
				f.wantUninstalled()
				return
			}
			f.start()
			f.daemon.Release(t, f.daemon.AllocateFor(t, "router")...)
		})
	}
}

// released returns a node whose killed daemon had released everything and left its socket and files.
func released(t *testing.T) *fixture {
	t.Helper()
	f := newFixture(t, scenario{})
	f.start()
	f.daemon.AllocateFor(t, "router")
	if out := f.node.Command(t, "release", "--all", "--yes"); out.ExitCode != 0 {
		t.Fatalf("release: %s", out.Stderr)
	}
	harness.Eventually(t, "the removals to be on disk", func() error {
		left, err := oracle.Journal(f.node.StateDir)
		if err == nil && len(left) > 0 {
			err = fmt.Errorf("%+v", left)
		}
		return err
	})
	f.kill()
	check.Must(t, os.WriteFile(journalFile(f.node)+".new", []byte("x"), 0o600))
	return f
}

// uninstall runs the command with the plan.
func (f *fixture) uninstall() ([]byte, error) {
	f.t.Helper()
	cmd := exec.Command(f.node.Program, "uninstall", "--yes", "--state-dir="+f.node.StateDir, "--socket-path="+f.node.Socket)
	cmd.Env = append(os.Environ(), f.node.Env...)
	return cmd.CombinedOutput()
}

// wantUninstalled wants that a run leaves nothing.
func (f *fixture) wantUninstalled() {
	f.t.Helper()
	if out, err := f.uninstall(); err != nil {
		f.t.Errorf("uninstall: %v\n%s", err, out)
	}
	for _, path := range []string{f.node.StateDir, f.node.Socket} {
		if _, err := os.Lstat(path); !os.IsNotExist(err) {
			f.t.Errorf("%s exists (%v)", path, err)
		}
	}
}
