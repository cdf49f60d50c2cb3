package e2e

import (
	"encoding/json"
	"os/exec"
	"slices"
	"strings"
	"testing"

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
