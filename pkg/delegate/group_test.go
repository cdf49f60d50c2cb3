package delegate

import (
	"errors"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/delegated-ipam/delegated-ipam/pkg/delegate/call"
)

// Trap: in a container we are process 1, to which orphans come. As zombies they
// would fill the container's process table, and make each such call take all of
// the grace.
func TestAsProcessOneNothingOfAnEndedPluginsGroupIsLeft(t *testing.T) {
	for name, end := range map[string]func(*testing.T) processGroup{
		"its child ends by SIGTERM":    endPluginWithChild,
		"its child must be ended more": endChildThatIgnoresSIGTERM,
		"it stood by with its child":   endWrapperThatStoodBy,
	} {
		t.Run(name, func(t *testing.T) {
			if os.Getpid() != 1 {
				runAsProcessOne(t)
				return
			}
			if err := end(t).signal(0); !errors.Is(err, unix.ESRCH) {
				t.Errorf("the plugin's group has members still (%v), want none", err)
			}
		})
	}
}

func endPluginWithChild(t *testing.T) processGroup {
	b := newBench(t)
	target := b.call("id")
	b.script(call.VerbAdd, `{"hang":true,"holdStdout":"never","stdoutBytes":2000000}`)
	wantError(t, b.run(call.VerbAdd, target), call.Unknown, "more than 1048576 bytes")
	return processGroup(b.calls(call.VerbAdd)[0].PID)
}

func endChildThatIgnoresSIGTERM(t *testing.T) processGroup {
	plugin := exec.Command("sh", "-c", "trap '' TERM; sleep 3600 & trap - TERM; kill $$")
	plugin.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := plugin.Run(); err == nil {
		t.Fatal("the plugin has ended by itself, want it ended by SIGTERM")
	}
	g := processGroup(plugin.Process.Pid)
	if err := g.signal(0); err != nil {
		t.Fatalf("its child has gone with it: %v", err)
	}
	g.endRest(time.Millisecond)
	return g
}
