package faults

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

// pausableHostLocal is the real host-local whose ADD for an owner, unlike one for a pod, waits for the
// file "$0.go". It logs the beginning and end of each ADD, DEL and CHECK.
const pausableHostLocal = `#!/bin/sh
case "$CNI_COMMAND $CNI_CONTAINERID" in *" delegated-ipam-config-"*) exec "$0.real" ;; ADD*|DEL*|CHECK*) ;; *) exec "$0.real" ;; esac
echo "begin $CNI_COMMAND" >>"$0.log"
case "$CNI_COMMAND $CNI_CONTAINERID" in "ADD cilium-agent-"*)
	until [ -e "$0.go" ]; do sleep 0.02; done ;;
esac
"$0.real"
code=$?
echo "end $CNI_COMMAND" >>"$0.log"
exit $code
`

// pausablePlugin is the plugin of a node whose ADDs for owners can be paused.
type pausablePlugin struct{ path string }

// installPausable wraps the node's host-local, which is not paused.
func installPausable(t *testing.T, n *harness.Node) pausablePlugin {
	t.Helper()
	p := pausablePlugin{n.WrapPlugin(t, "host-local", pausableHostLocal)}
	p.resume(t)
	return p
}

func (p pausablePlugin) resume(t *testing.T) {
	t.Helper()
	check.Must(t, os.WriteFile(p.path+".go", nil, 0o600))
}

func (p pausablePlugin) pause(t *testing.T) {
	t.Helper()
	check.Must(t, os.Remove(p.path+".go"))
}

// waitPausedADDs waits until that many ADDs have begun and not ended.
func (p pausablePlugin) waitPausedADDs(t *testing.T, want int) {
	t.Helper()
	harness.Eventually(t, fmt.Sprintf("%d paused ADDs", want), func() error {
		log, _ := os.ReadFile(p.path + ".log") // missing before the first call
		got := bytes.Count(log, []byte("begin ADD\n")) - bytes.Count(log, []byte("end ADD\n"))
		if got != want {
			return fmt.Errorf("there are %d", got)
		}
		return nil
	})
}

// interruptADD pauses the ADD of the owner "interrupted-0", kills the daemon, and wants no response.
func (p pausablePlugin) interruptADD(t *testing.T, s *harness.Daemon, kill func()) {
	t.Helper()
	p.pause(t)
	pending := allocateInBackground(s, "interrupted", 1)
	p.waitPausedADDs(t, 1)
	kill()
	if a := <-pending; a.err == nil {
		t.Fatalf("the killed daemon answered %s", a.Response)
	}
}

// most returns the largest number of calls that had begun and not ended.
func (p pausablePlugin) most(t *testing.T) int {
	t.Helper()
	log, err := os.ReadFile(p.path + ".log")
	check.Must(t, err)
	running, most := 0, 0
	for line := range strings.Lines(string(log)) {
		switch event, _, _ := strings.Cut(line, " "); event {
		case "begin":
			running++
		case "end":
			running--
		}
		most = max(most, running)
	}
	return most
}
