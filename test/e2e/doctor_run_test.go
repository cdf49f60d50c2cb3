package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

// finding is one line of `doctor -o json`.
type finding struct{ Check, Pool, Address, State, Seen, Do string }

// diagnosis is what a doctor has found.
type diagnosis struct {
	code  int
	found []finding
}

// doctorOf runs `doctor` on a node, with the options of its sidecar, before there is
// one. What stands before the program's name is run first: a command that becomes it.
func doctorOf(t *testing.T, n *harness.Node, under []string, flags ...string) diagnosis {
	t.Helper()
	args := slices.Concat(under, []string{harness.Binary(t), "doctor", "-o", "json"}, n.ServeArgs(flags...)[1:])
	return diagnose(t, n, args)
}

// doctorInside runs `doctor` on a node as one does in the sidecar's container: without
// any option.
func doctorInside(t *testing.T, n *harness.Node, under ...string) diagnosis {
	t.Helper()
	return diagnose(t, n, slices.Concat(under, []string{harness.Binary(t), "doctor", "-o", "json", "-H", n.Socket}))
}

func diagnose(t *testing.T, n *harness.Node, args []string) diagnosis {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Dir = n.Dir
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "GOCOVERDIR=" + os.Getenv("GOCOVERDIR"), "GORACE=atexit_sleep_ms=0"}, n.Env...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatalf("%s: %v", cmd, err)
	}
	d := diagnosis{code: cmd.ProcessState.ExitCode()}
	if err := json.Unmarshal(stdout.Bytes(), &d.found); err != nil {
		t.Fatalf("%s printed %q, to stderr %q: %v", cmd, &stdout, &stderr, err)
	}
	if want := statusOf(d.found); d.code != want {
		t.Errorf("%s ended with status %d; want %d by what it found: %+v", cmd, d.code, want, d.found)
	}
	return d
}

// statusOf is the exit status that findings ask for.
func statusOf(all []finding) int {
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

// bad are the findings that are not ok, in short. What depends on the machine of the
// test is left out unless it is asked for: its ID, and where its temporary files are.
func (d diagnosis) bad(wanted ...string) []string {
	var all []string
	for _, f := range d.found {
		ofMachine := slices.Contains([]string{"machine-id", "state-dir", "room"}, f.Check) && !slices.Contains(wanted, f.Check)
		if f.State != "ok" && !ofMachine {
			all = append(all, f.State+" "+f.Check)
		}
	}
	return all
}

// wants compares the findings that are not ok with those that are wanted, of which one
// says each word.
func (d diagnosis) wants(t *testing.T, want []string, says ...string) {
	t.Helper()
	var checks []string
	for _, w := range want {
		checks = append(checks, strings.Fields(w)[1])
	}
	if got := d.bad(checks...); !slices.Equal(got, want) {
		t.Errorf("found %q; want %q; all: %+v", got, want, d.found)
	}
	for _, word := range says {
		if !slices.ContainsFunc(d.found, func(f finding) bool {
			return f.State != "ok" && strings.Contains(f.Seen+" "+f.Do, word)
		}) {
			t.Errorf("no finding that is not ok says %q: %+v", word, d.found)
		}
	}
}

// is tells whether a check was made, and all of it is ok.
func (d diagnosis) is(check string) bool {
	seen := false
	for _, f := range d.found {
		if f.Check == check && f.State != "ok" {
			return false
		}
		seen = seen || f.Check == check
	}
	return seen
}

// mounted is a command that runs another one in a mount namespace of its own, after
// lines of sh that mount what only that one sees.
func mounted(t *testing.T, lines string) []string {
	t.Helper()
	if err := exec.Command("unshare", "-m", "true").Run(); err != nil {
		harness.Skipf(t, "a mount namespace cannot be made here (root and unshare are needed): %v", err)
	}
	return []string{"unshare", "-m", "sh", "-ec", lines + "\nexec \"$@\"", "sh"}
}
