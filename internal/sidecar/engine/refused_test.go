package engine

import (
	"testing"
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/profile"
	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/engine/protocol"
	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/journal/record"
)

// needsPod makes the plugin refuse ADD and DEL without a pod, which its profile does not name yet.
func needsPod(n *fakeNode, o *Options) {
	ipv4Only(n, o)
	n.needsPod = true
	n.profile.PodIdentity = profile.PodIdentityNone
}

// namesPod is the right profile.
func namesPod(n *fakeNode, _ *Options) { n.profile.PodIdentity = profile.PodIdentitySynthetic }

// The plugin refuses every ADD and DEL with the profile at that time, and neither with the one of
// today.
func TestRefusedInvocation(t *testing.T) {
	refusedBefore := func(t *testing.T) *fixture {
		f := newFixture(t, needsPod)
		f.wantError(f.tryAllocate("router"), protocol.Failed, "no pod")
		f.sleep(time.Minute)
		f.wantRecords(1)
		return f
	}
	run(t, "next start", func(t *testing.T) {
		f := refusedBefore(t)
		f.restart(namesPod)
		f.wantNone()
		f.wantRecords(0)
	})
	run(t, "retry", func(t *testing.T) {
		f := refusedBefore(t)
		f.node.mu.Lock()
		namesPod(f.node, nil)
		f.node.mu.Unlock()
		f.sleep(2 * maxRetryDelay)
		f.wantNone()
		f.wantRecords(0)
	})
	run(t, "the owner requests again, and releases", func(t *testing.T) {
		f := refusedBefore(t)
		f.node.mu.Lock()
		namesPod(f.node, nil)
		f.node.mu.Unlock()
		f.allocate("router")
		f.wantHeld("router", "10.0.0.1")
		f.release("10.0.0.1")
		f.wantNone()
		f.wantRecords(0)
	})
	run(t, "an ADD with an unknown outcome may have allocated", func(t *testing.T) {
		f := newFixture(t, needsPod)
		f.node.mu.Lock()
		f.node.needsPod = false
		f.node.mu.Unlock()
		f.inject(once("ADD", timeoutAfter))
		f.node.afterAdd = func(call.Call) {
			f.node.mu.Lock()
			defer f.node.mu.Unlock()
			f.node.needsPod = true
		}
		f.wantError(f.tryAllocate("router"), protocol.Failed)
		f.restart(namesPod)
		f.sleep(time.Hour)
		f.wantRecords(1)
		if got := f.get("router"); got.State != record.Releasing || got.LastError == "" {
			t.Errorf("router is %s, last error %q", got.State, got.LastError)
		}
	})
}
