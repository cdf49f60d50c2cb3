package bridge

import (
	"testing"
	"time"

	"github.com/delegated-ipam/delegated-ipam/test/bridge/apiserver"
)

// TestRequests counts the requests of the bridge: what a burst of pods, their replacement and their end
// cost the API server.
func TestRequests(t *testing.T) {
	const pods = 40
	f := newFixture(t, false)
	f.serve(t, 7, "--pre-allocate=4", "--min-allocate=4")
	reads, writes := f.server.Counts()
	since := time.Now()
	// requested returns the requests since the last call. Those that time alone causes (maxBatch of the
	// bridge, a resync) are not counted.
	requested := func() (r, w int) {
		newReads, newWrites := f.server.Counts()
		r, w, reads, writes = newReads-reads, newWrites-writes, newReads, newWrites
		took := time.Since(since)
		since = time.Now()
		if took < 5*time.Second {
			return r, w
		}
		return r - 1 - int(took/(30*time.Second)), w - 1 - int(took/(10*time.Second))
	}
	names := f.server.AddPods(f.node.Name, pods)
	f.eventually(t, "an address for each pod", func() error { return f.poolHas(t, pods+7) })
	// One or two; more where the events of the pods come slowly.
	if r, w := requested(); r > 0 || w > pods/4 {
		t.Errorf("%d reads and %d writes for a burst of %d pods; want 0 and at most %d", r, w, pods, pods/4)
	}
	f.addPods(t, pods)
	f.waitForUsed(t, pods)
	f.agent.Free(f.agent.Uses()...)
	f.server.DeletePods(names...)
	f.converge(t, 7)
	// Suspend, ping, marks, withdrawal and "released"; reads before the withdrawal and what follows.
	if r, w := requested(); w > pods/2 || r > 10 {
		t.Errorf("%d reads and %d writes for the end of %d pods; want at most 10 and %d", r, w, pods, pods/2)
	}
	f.server.AddPods("other", 1)
	f.server.AddPods(f.node.Name, 4)
	f.eventually(t, "four more", func() error { return f.poolHas(t, 11) })
	if r, w := requested(); r > 0 || w >= 4 {
		t.Errorf("%d reads and %d writes for four pods; want 0 and less than a write each", r, w)
	}
}

// TestOwnRange has a plugin whose range is the node's own: two writes publish an address for each pod
// that the node can have, and the pods cost nothing.
func TestOwnRange(t *testing.T) {
	t.Parallel()
	const pods = 40
	eachFamily(t, func(t *testing.T, f *fixture) {
		began := time.Now()
		f.addNode(pods)
		f.serve(t, 3+pods)
		_, before := f.server.Counts()
		if before > 2+int(time.Since(began)/(10*time.Second)) {
			t.Errorf("%d writes until all addresses are published; want 2", before)
		}
		names := f.server.AddPods(f.node.Name, pods)
		f.addPods(t, pods)
		f.agent.Free(f.agent.Uses()...)
		f.server.DeletePods(names...)
		f.waitForUsed(t, 0)
		f.converge(t, 3+pods)
		if _, writes := f.server.Counts(); writes > before {
			t.Errorf("%d writes for %d pods; want none", writes-before, pods)
		}
	})
}

// Without the right to watch pods, and without the watch, the node is served.
func TestWithoutPods(t *testing.T) {
	t.Parallel()
	for name, flags := range map[string][]string{"switched off": {"--watch-pods=false"}, "not permitted": nil} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, false)
			rights := grantedRights(t)
			f.server.Allow(func(r apiserver.Permission) bool { return rights[r] && r.Resource != "pods" })
			f.serve(t, 4, append(smallFlags(), flags...)...)
			f.addPods(t, 8)
			if requested := f.server.Requested(); len(flags) > 0 && requested[apiserver.Permission{Resource: "pods", Verb: "watch"}] {
				t.Error("pods are watched although --watch-pods=false")
			}
		})
	}
}
