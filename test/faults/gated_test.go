package faults

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

// gatedHostLocal is the real host-local behind a gate at which each ADD waits. It
// writes down when the process of a call that changes something starts, and when the
// call begins and ends. As in host-local, a call begins when its configuration is
// there: a process that is not told one was not called.
const gatedHostLocal = `#!/bin/sh
case "$CNI_COMMAND" in ADD|DEL|CHECK) ;; *) exec "$0.real" ;; esac
echo "start $CNI_COMMAND" >>"$0.log"
config=$(cat)
[ -n "$config" ] || exec "$0.real" </dev/null
echo "begin $CNI_COMMAND" >>"$0.log"
if [ "$CNI_COMMAND" = ADD ]; then
	until [ -e "$0.go" ]; do sleep 0.02; done
fi
printf '%s' "$config" | "$0.real"
code=$?
echo "end $CNI_COMMAND" >>"$0.log"
exit $code
`

// gated is a gated plugin of a node.
type gated struct{ path string }

// newGated puts a gate, which is open, before the node's host-local.
func newGated(t *testing.T, n *harness.Node) gated {
	t.Helper()
	g := gated{filepath.Join(n.BinDir, "host-local")}
	must(t, os.Rename(g.path, g.path+".real"))
	n.InstallELFScript(t, "host-local", gatedHostLocal)
	g.open(t)
	return g
}

func (g gated) open(t *testing.T) {
	t.Helper()
	must(t, os.WriteFile(g.path+".go", nil, 0o600))
}

func (g gated) shut(t *testing.T) {
	t.Helper()
	must(t, os.Remove(g.path+".go"))
}

// log is what was written down, one line each.
func (g gated) log(t *testing.T) string {
	t.Helper()
	data, err := os.ReadFile(g.path + ".log")
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return string(data)
}

// waiting is how many ADDs have begun and not ended.
func (g gated) waiting(t *testing.T) int {
	t.Helper()
	log := g.log(t)
	return strings.Count(log, "begin ADD\n") - strings.Count(log, "end ADD\n")
}

// awaitADDs waits until so many ADDs stand before the gate.
func (g gated) awaitADDs(t *testing.T, want int) {
	t.Helper()
	harness.Eventually(t, fmt.Sprintf("%d ADDs at the gate", want), func() error {
		if got := g.waiting(t); got != want {
			return fmt.Errorf("there are %d", got)
		}
		return nil
	})
}

// most is the largest number of calls that ran at one time.
func (g gated) most(t *testing.T) int {
	t.Helper()
	return g.mostBetween(t, "begin", "end")
}

// mostProcesses is the largest number of processes that there were at one time, if
// each was called in the end.
func (g gated) mostProcesses(t *testing.T) int {
	t.Helper()
	return g.mostBetween(t, "start", "end")
}

func (g gated) mostBetween(t *testing.T, first, last string) int {
	t.Helper()
	running, most := 0, 0
	for line := range strings.Lines(g.log(t)) {
		switch what, _, _ := strings.Cut(line, " "); what {
		case first:
			running++
		case last:
			running--
		}
		most = max(most, running)
	}
	return most
}
