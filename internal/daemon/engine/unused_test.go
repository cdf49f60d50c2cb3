package engine

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/containerid"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
)

func TestWhileUnused(t *testing.T) {
	wantUnused := func(f *fixture, id string, want bool) {
		f.t.Helper()
		done := false
		if got := f.WhileUnused(id, func() { done = true }); got != want || done != want {
			f.t.Errorf("%s: got %t, done %t; want %t", id, got, done, want)
		}
	}
	run(t, "held", nil, func(f *fixture) {
		id := f.allocate("router").ContainerID
		wantUnused(f, id, false)
		wantUnused(f, containerid.Generation(id, 3), false)
		wantUnused(f, containerid.For("health", "node", "net"), true)
		f.addInvocation("router", func(c *call.Invocation) { c.ContainerID = "cilium-agent-0123456789abcdef" })
		wantUnused(f, "cilium-agent-0123456789abcdef-g1", false)
		f.release("10.0.0.1", "fd00::1")
		synctest.Wait() // the record is removed behind the response
		wantUnused(f, id, true)
	})
	run(t, "before the first record", with(gatedAdd), func(f *fixture) {
		f.startAllocate(AllocateRequest{Owner: "router"})
		wantUnused(f, f.get("router").ContainerID, false)
		f.openGate()
	})
	run(t, "late DEL", with(ipv4Only), func(f *fixture) {
		id := f.allocate("router").ContainerID
		f.inject(always(timeoutLate, "DEL"))
		_ = f.tryRelease("10.0.0.1")
		wantUnused(f, id, false)
		f.inject(nil)
		f.sleep(time.Hour)
	})
}
