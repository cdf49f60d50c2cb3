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
	for name, after := range map[string]func(f *fixture){
		"next start": func(f *fixture) { f.restart(namesPod) },
		"retry": func(f *fixture) {
			f.node.with(func(n *fakeNode) { namesPod(n, nil) })
			f.sleep(2 * maxRetryDelay)
		},
		"the owner requests again, and releases": func(f *fixture) {
			f.node.with(func(n *fakeNode) { namesPod(n, nil) })
			f.allocate("router")
			f.wantHeld("router", "10.0.0.1")
			f.release("10.0.0.1")
		},
	} {
		run(t, name, with(needsPod), func(f *fixture) {
			f.wantError(f.tryAllocate("router"), protocol.Failed, "no pod")
			f.sleep(time.Minute)
			f.wantRecords(1)
			after(f)
			f.wantGone()
		})
	}
	run(t, "an ADD with an unknown outcome may have allocated", with(needsPod), func(f *fixture) {
		f.node.needsPod = false
		f.inject(once("ADD", timeoutAfter))
		f.node.afterAdd = func(call.Call) { f.node.with(func(n *fakeNode) { n.needsPod = true }) }
		f.wantError(f.tryAllocate("router"), protocol.Failed)
		f.restart(namesPod)
		f.sleep(time.Hour)
		f.wantRecords(1)
		if got := f.get("router"); got.State != record.Releasing || got.LastError == "" {
			f.t.Errorf("router is %s, last error %q", got.State, got.LastError)
		}
	})
}
