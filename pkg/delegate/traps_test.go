package delegate

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/delegated-ipam/delegated-ipam/pkg/delegate/call"
)

// Trap: an ADD error may mean allocated.
func TestAnAddErrorMayMeanAllocated(t *testing.T) {
	for name, c := range map[string]struct {
		script  string
		timeout time.Duration
		outcome call.Outcome
	}{
		"an error after the work":      {`{"times":1,"afterWork":true,"error":` + goodError + `}`, time.Minute, call.Refused},
		"a crash after the write":      {`{"times":1,"afterWork":true,"killSelf":9}`, time.Minute, call.Unknown},
		"a time-out after the work":    {`{"times":1,"afterWork":true,"hang":true}`, 200 * time.Millisecond, call.Unknown},
		"two documents and exit 1":     {`{"times":1,"afterWork":true,"result":` + goodResult + `,"error":` + goodError + `}`, time.Minute, call.Unknown},
		"an answer that is no address": {`{"times":1,"afterWork":true,"stdout":"hello"}`, time.Minute, call.Unknown},
	} {
		t.Run(name, func(t *testing.T) {
			var b *bench
			var target call.Call
			// How long the work takes is the machine's to say: where the time was over
			// before, there is more of it for the next.
			for limit := c.timeout; ; limit *= 2 {
				b = newBench(t)
				target = b.call("id")
				b.script(call.VerbAdd, c.script)
				b.runner.opts.Timeout = limit
				e := wantError(t, b.run(call.VerbAdd, target), c.outcome, "")
				if e.Outcome == call.NotStarted {
					t.Error("the outcome says that nothing was changed")
				}
				last, err := os.ReadFile(filepath.Join(b.scripts, "store", "fd00::2"))
				if limit >= time.Minute || err == nil && len(last) > 0 {
					break
				}
			}
			b.stores("10.1.0.2", "fd00::2")
			b.runner.opts.Timeout = time.Minute
			b.must(call.VerbDel, target)
			b.stores()
		})
	}
}

// Trap: invoke.Delegate* reads CNI_* from the process environment, so that it
// cannot serve two requests at once.
func TestTwoCallsAtOnceEachSeeTheirOwnCNIVariables(t *testing.T) {
	b := newBench(t)
	const n = 8
	var calls sync.WaitGroup
	for i := range n {
		target := b.call(fmt.Sprintf("id%d", i))
		target.Invocation.IfName = fmt.Sprintf("eth%d", i)
		calls.Go(func() {
			if err := b.run(call.VerbAdd, target); err != nil {
				t.Error(err)
			}
		})
	}
	calls.Wait()
	seen := map[string]bool{}
	for _, c := range b.calls(call.VerbAdd) {
		id, ifName := c.Env["CNI_CONTAINERID"], c.Env["CNI_IFNAME"]
		if strings.TrimPrefix(id, "id") != strings.TrimPrefix(ifName, "eth") {
			t.Errorf("one call saw container ID %s with interface %s", id, ifName)
		}
		seen[id] = true
	}
	if len(seen) != n {
		t.Errorf("%d container IDs were seen, want %d", len(seen), n)
	}
}

// Trap: libcni's result cache is shared with the container runtime.
func TestNoResultCacheIsSharedWithTheContainerRuntime(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", "./...").CombinedOutput()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, out)
	}
	packages := strings.Fields(string(out))
	invoke := 0
	for _, p := range packages {
		switch {
		case strings.HasSuffix(p, "containernetworking/cni/libcni"):
			t.Errorf("%s is a dependency; its cache is the container runtime's too", p)
		case strings.HasSuffix(p, "containernetworking/cni/pkg/invoke"):
			invoke++
		}
	}
	if invoke != 1 {
		t.Errorf("found pkg/invoke %d times among %d packages, want it once, or this test looks at nothing", invoke, len(packages))
	}
}

// Trap: GC (spec 1.1) by the container runtime names only its own attachments.
func TestGCByARuntimeFreesOursWhereThePluginImplementsIt(t *testing.T) {
	b := newBench(t)
	target := b.call("id")
	b.add(target)
	b.stores("10.1.0.2", "fd00::2")
	if stdout, exit := b.byHand("GC", target, gcConfig(t, target)); exit != 0 {
		t.Fatalf("GC: exit status %d: %s", exit, stdout)
	}
	b.stores()
	err := b.run(call.VerbCheck, target)
	wantError(t, err, call.Refused, "Failed to find address")
	if !call.IsLost(target.Invocation, err) {
		t.Errorf("got not lost: %v", err)
	}
}

func TestGCThatNamesOursLeavesThemAlone(t *testing.T) {
	b := newBench(t)
	target := b.call("id")
	b.add(target)
	config, err := extend(target.Invocation.Config, map[string]json.RawMessage{
		"cni.dev/valid-attachments": json.RawMessage(`[{"containerID":"id","ifname":"eth0"}]`),
	})
	if err != nil {
		t.Fatal(err)
	}
	if stdout, exit := b.byHand("GC", target, config); exit != 0 {
		t.Fatalf("GC: exit status %d: %s", exit, stdout)
	}
	b.stores("10.1.0.2", "fd00::2")
}
