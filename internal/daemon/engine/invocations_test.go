package engine

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/daemon/attachment"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/profile"
	"github.com/delegated-ipam/delegated-ipam/pkg/client"
)

func TestInvocations(t *testing.T) {
	run(t, "DEL uses the invocation of the ADD", nil, func(f *fixture) {
		f.allocate("router")
		f.node.networks[client.DefaultPool] = "renamed"
		calls := f.recordCalls(func(c call.Call) string { return c.Invocation.Network })
		f.release("10.0.0.1", "fd00::1")
		f.wantCalls(calls, "DEL net")
	})
	run(t, "kept until its DEL succeeds", nil, func(f *fixture) {
		f.allocate("router")
		f.clearStore()
		f.node.networks[client.DefaultPool] = "renamed"
		f.inject(nth(2, "DEL", notStarted)) // with the old invocation
		a := f.allocate("router")
		if len(a.Invocations) != 2 || a.Invocations[0].Network != "net" || a.Invocations[1].Network != "renamed" {
			f.t.Fatalf("invocations %+v", a.Invocations)
		}
		calls := f.recordCalls(func(c call.Call) string { return c.Invocation.Network })
		f.releaseAll(a)
		f.wantCalls(calls, "DEL renamed", "DEL net")
	})
	run(t, "kept while its ADD may act", with(unknownPlugin), func(f *fixture) {
		lastDEL := map[string]time.Time{}
		f.onCall(func(verb string, c call.Call) {
			if verb == "DEL" {
				lastDEL[c.Invocation.Network] = time.Now()
			}
		})
		f.inject(once("ADD", timeoutBefore))
		f.wantError(f.tryAllocate("router"), attachment.Failed)
		began := time.Now()
		f.node.networks[client.DefaultPool] = "net2"
		f.allocate("router")
		f.sleep(time.Hour)
		f.release("10.0.0.1")
		if d := lastDEL["net"].Sub(began); d < 240*time.Second {
			f.t.Errorf("the last DEL came %s after the timed-out ADD, which may act for 240s", d)
		}
	})
	run(t, "CHECK gets the result of the ADD", nil, func(f *fixture) {
		f.allocate("router")
		calls := f.recordCalls(func(c call.Call) string { return string(c.PrevResult) })
		f.allocate("router")
		f.wantCalls(calls, `CHECK {"cniVersion":"1.1.0"}`)
	})
}

// recordCalls records the verb and a field of each plugin call from now on.
func (f *fixture) recordCalls(field func(call.Call) string) *[]string {
	calls := &[]string{}
	f.onCall(func(verb string, c call.Call) { *calls = append(*calls, verb+" "+field(c)) })
	return calls
}

func (f *fixture) wantCalls(calls *[]string, want ...string) {
	f.t.Helper()
	synctest.Wait()
	if fmt.Sprintf("%q", *calls) != fmt.Sprintf("%q", want) {
		f.t.Errorf("calls %q; want %q", *calls, want)
	}
}

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
			f.wantError(f.tryAllocate("router"), attachment.Failed, "no pod")
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
		f.wantError(f.tryAllocate("router"), attachment.Failed)
		f.restart(namesPod)
		f.sleep(time.Hour)
		f.wantRecords(1)
		if got := f.get("router"); got.State != attachment.Releasing || got.LastError == "" {
			f.t.Errorf("router is %s, last error %q", got.State, got.LastError)
		}
	})
}
