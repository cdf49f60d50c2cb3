package faults

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

// pausableHostLocal is the real host-local whose ADD waits for the file "$0.go". It logs the start
// of the process, and the beginning and end of the call, for ADD, DEL and CHECK. A call begins when
// its configuration arrives: a prestarted process that gets none was not called.
const pausableHostLocal = `#!/bin/sh
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

// pausablePlugin is the plugin of a node whose ADDs can be paused.
type pausablePlugin struct{ path string }

// installPausable wraps the node's host-local, which is not paused.
func installPausable(t *testing.T, n *harness.Node) pausablePlugin {
	t.Helper()
	p := pausablePlugin{n.WrapPluginELF(t, "host-local", pausableHostLocal)}
	p.resume(t)
	return p
}

func (p pausablePlugin) resume(t *testing.T) {
	t.Helper()
	harness.Must(t, os.WriteFile(p.path+".go", nil, 0o600))
}

func (p pausablePlugin) pause(t *testing.T) {
	t.Helper()
	harness.Must(t, os.Remove(p.path+".go"))
}

// log returns the log, a line for each event.
func (p pausablePlugin) log(t *testing.T) string {
	t.Helper()
	data, err := os.ReadFile(p.path + ".log")
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return string(data)
}

// pausedADDs returns the number of ADDs that have begun and not ended.
func (p pausablePlugin) pausedADDs(t *testing.T) int {
	t.Helper()
	log := p.log(t)
	return strings.Count(log, "begin ADD\n") - strings.Count(log, "end ADD\n")
}

// waitPausedADDs waits until that many ADDs are paused.
func (p pausablePlugin) waitPausedADDs(t *testing.T, want int) {
	t.Helper()
	harness.Eventually(t, fmt.Sprintf("%d paused ADDs", want), func() error {
		if got := p.pausedADDs(t); got != want {
			return fmt.Errorf("there are %d", got)
		}
		return nil
	})
}

// maxCalls returns the largest number of concurrent calls.
func (p pausablePlugin) maxCalls(t *testing.T) int {
	t.Helper()
	return p.maxBetween(t, "begin", "end")
}

// maxProcesses returns the largest number of concurrent processes, of those that were called
// in the end.
func (p pausablePlugin) maxProcesses(t *testing.T) int {
	t.Helper()
	return p.maxBetween(t, "start", "end")
}

func (p pausablePlugin) maxBetween(t *testing.T, first, last string) int {
	t.Helper()
	running, most := 0, 0
	for line := range strings.Lines(p.log(t)) {
		switch event, _, _ := strings.Cut(line, " "); event {
		case first:
			running++
		case last:
			running--
		}
		most = max(most, running)
	}
	return most
}
