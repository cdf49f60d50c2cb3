package process

import (
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

// withChild is a plugin that prints too much and has a child in its process group.
const withChild = "sleep 3600 &\nhead -c 2000000 /dev/zero\nexec sleep 3600"

func TestGroupIsTerminated(t *testing.T) {
	c := script(t, "trap '' TERM\n"+withChild)
	c.Grace = time.Millisecond
	group, r := run(t, c)
	if !r.TooMuchOutput {
		t.Errorf("got %+v, want too much output", r)
	}
	// SIGKILL takes effect, but not before kill(2) returns.
	for tries := 0; hasLiving(t, group); tries++ {
		if tries == 10_000 {
			t.Fatal("a process of the plugin's group still runs")
		}
		runtime.Gosched()
	}
}

// hasLiving reports whether a process group has a member that is not a zombie.
func hasLiving(t *testing.T, group int) bool {
	t.Helper()
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range stats {
		data, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		text := string(data)
		f := strings.Fields(text[strings.LastIndex(text, ")")+1:])
		if f[0] != "Z" && f[2] == strconv.Itoa(group) {
			return true
		}
	}
	return false
}

// Trap: in a container we are process 1, which adopts orphans. As zombies they would fill the
// container's process table, and make each such call take all of the grace.
func TestGroupIsReapedAsInit(t *testing.T) {
	for name, end := range map[string]func(*testing.T) (group int){
		"child ended by SIGTERM": func(t *testing.T) int {
			group, _ := run(t, script(t, withChild))
			return group
		},
		"child ended by SIGKILL":   endChildIgnoringSIGTERM,
		"child of a discarded one": discardWithChild,
	} {
		t.Run(name, func(t *testing.T) {
			if os.Getpid() != 1 {
				harness.RunAsInit(t)
				return
			}
			wantEmpty(t, end(t))
		})
	}
}

func endChildIgnoringSIGTERM(t *testing.T) (group int) {
	p, err := script(t, "trap '' TERM; sleep 3600 >/dev/null 2>&1 & trap - TERM; kill $$").Start(nil)
	if err != nil {
		t.Fatal(err)
	}
	if r := p.Wait(); r.Exit.String() != "signal: terminated" {
		t.Fatalf("the plugin ended with %s, want SIGTERM", r.Exit)
	}
	if err := p.signalGroup(0); err != nil {
		t.Fatalf("its child has ended with it: %v", err)
	}
	p.terminateGroup(time.Millisecond)
	return p.PID()
}

// discardWithChild discards a script around another plugin.
func discardWithChild(t *testing.T) (group int) {
	ready, awaitReady := newFifo(t)
	p, err := script(t, "exec 5<&0\nsh -c 'sleep 3600; :' <&5 &\necho >"+ready+"\nwait").Prestart()
	if err != nil {
		t.Fatal(err)
	}
	awaitReady()
	p.Discard()
	return p.PID()
}
