package plugin

import (
	"fmt"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
)

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
	f.gc(target, call.Attachment{ContainerID: "id", IfName: "eth0"})
	f.wantHeld("10.1.0.2", "fd00::2")
	f.gc(target)
	f.wantHeld()
	err := f.run(call.VerbCheck, target)
	wantError(t, err, call.Refused, "Failed to find address")
	if !call.IsLost(target.Invocation, err) {
		t.Errorf("got not lost: %v", err)
	}
}
