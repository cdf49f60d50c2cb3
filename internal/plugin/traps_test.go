package plugin

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
)

// Trap: an ADD error may mean allocated.
func TestFailedAddMayAllocate(t *testing.T) {
	for name, c := range map[string]struct {
		script  string
		timeout time.Duration
		outcome call.Outcome
	}{
		"error after the work":     {`{"times":1,"afterWork":true,"error":` + goodError + `}`, time.Minute, call.Refused},
		"crash after the write":    {`{"times":1,"afterWork":true,"killSelf":9}`, time.Minute, call.Unknown},
		"timeout after the work":   {`{"times":1,"afterWork":true,"hang":true}`, 200 * time.Millisecond, call.Unknown},
		"two documents and exit 1": {`{"times":1,"afterWork":true,"result":` + goodResult + `,"error":` + goodError + `}`, time.Minute, call.Unknown},
		"output not a result":      {`{"times":1,"afterWork":true,"stdout":"hello"}`, time.Minute, call.Unknown},
	} {
		t.Run(name, func(t *testing.T) {
			var f *fixture
			var target call.Call
			// The machine decides how long the work takes: after a timeout before its end the next
			// attempt gets more time.
			for timeout := c.timeout; ; timeout *= 2 {
				f = newFake(t)
				target = f.call("id")
				f.script(call.VerbAdd, c.script)
				// The plugin ignores SIGTERM during its work, and hangs afterwards.
				f.runner.opts.Timeout, f.runner.opts.Grace = timeout, timeout
				wantError(t, f.run(call.VerbAdd, target), c.outcome, "")
				last, err := os.ReadFile(filepath.Join(f.dir, "store", "fd00::2"))
				if timeout >= time.Minute || err == nil && len(last) > 0 {
					break
				}
			}
			f.wantHeld("10.1.0.2", "fd00::2")
			f.runner.opts.Timeout = time.Minute
			f.must(target, call.VerbDel)
			f.wantHeld()
		})
	}
}

// Trap: invoke.Delegate* reads CNI_* from the process environment, so that it cannot serve two
// requests concurrently.
func TestConcurrentCallsEnvironment(t *testing.T) {
	f := newFake(t)
	const n = 8
	var calls sync.WaitGroup
	for i := range n {
		target := f.call(fmt.Sprintf("id%d", i))
		target.Invocation.IfName = fmt.Sprintf("eth%d", i)
		calls.Go(func() {
			if err := f.run(call.VerbAdd, target); err != nil {
				t.Error(err)
			}
		})
	}
	calls.Wait()
	seen := map[string]bool{}
	for _, c := range f.calls(call.VerbAdd) {
		id, ifName := c.Env["CNI_CONTAINERID"], c.Env["CNI_IFNAME"]
		if strings.TrimPrefix(id, "id") != strings.TrimPrefix(ifName, "eth") {
			t.Errorf("one call had container ID %s with interface %s", id, ifName)
		}
		seen[id] = true
	}
	if len(seen) != n {
		t.Errorf("got %d container IDs, want %d", len(seen), n)
	}
}

// Trap: libcni's result cache is shared with the container runtime.
func TestNoSharedResultCache(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", "./...").CombinedOutput()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, out)
	}
	packages := strings.Fields(string(out))
	invoke := 0
	for _, p := range packages {
		switch {
		case strings.HasSuffix(p, "containernetworking/cni/libcni"):
			t.Errorf("%s is a dependency; its cache is the container runtime's, too", p)
		case strings.HasSuffix(p, "containernetworking/cni/pkg/invoke"):
			invoke++
		}
	}
	if invoke != 1 {
		t.Errorf("found pkg/invoke %d times among %d packages, want once, or this test proves nothing", invoke, len(packages))
	}
}

// Trap: GC (spec 1.1) by the container runtime names only its own attachments.
func TestGCOfRuntime(t *testing.T) {
	f := newFake(t)
	target := f.call("id")
	f.add(target)
	f.gc(target, `[{"containerID":"id","ifname":"eth0"}]`)
	f.wantHeld("10.1.0.2", "fd00::2")
	f.gc(target, `[]`)
	f.wantHeld()
	err := f.run(call.VerbCheck, target)
	wantError(t, err, call.Refused, "Failed to find address")
	if !call.IsLost(target.Invocation, err) {
		t.Errorf("got not lost: %v", err)
	}
}
