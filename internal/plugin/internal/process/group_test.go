package process

import (
	"errors"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

// withChild is a plugin that prints too much and has a child in its process group.
const withChild = "sleep 3600 &\nhead -c 2000000 /dev/zero\nexec sleep 3600"

func TestGroupIsTerminated(t *testing.T) {
	open, awaitClosed := newFifo(t) // by all of the group
	ended := make(chan struct{})
	go func() {
		awaitClosed()
		close(ended)
	}()
	c := script(t, "trap '' TERM\nexec 5>"+open+"\n"+withChild)
	c.Grace = time.Millisecond
	if _, r := run(t, c); !r.TooMuchOutput {
		t.Errorf("got %+v, want too much output", r)
	}
	<-ended
}

// Trap: in a container we are process 1, which adopts orphans. As zombies they would fill the
// container's process table, and make each such call take all of the grace.
func TestGroupIsReapedAsInit(t *testing.T) {
	for name, end := range map[string]func(*testing.T) (group int){
		"child ended by SIGTERM": func(t *testing.T) int {
			group, _ := run(t, script(t, withChild))
			return group
		},
		"child ended by SIGKILL": endChildIgnoringSIGTERM,
	} {
		t.Run(name, func(t *testing.T) {
			if os.Getpid() != 1 {
				harness.RunAsInit(t)
				return
			}
			if err := unix.Kill(-end(t), 0); !errors.Is(err, unix.ESRCH) {
				t.Errorf("the process group has members (%v), want none, nor a zombie", err)
			}
		})
	}
}

func endChildIgnoringSIGTERM(t *testing.T) (group int) {
	p, err := script(t, "trap '' TERM; sleep 3600 >/dev/null 2>&1 & trap - TERM; kill $$").Start(nil)
	check.Must(t, err)
	if r := p.Wait(); r.Exit.String() != "signal: terminated" {
		t.Fatalf("the plugin ended with %s, want SIGTERM", r.Exit)
	}
	if err := p.signalGroup(0); err != nil {
		t.Fatalf("its child has ended with it: %v", err)
	}
	p.terminateGroup(time.Millisecond)
	return p.pid()
}
