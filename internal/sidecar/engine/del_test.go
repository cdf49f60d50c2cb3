package engine

import (
	"testing"
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/containerid"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/profile"
	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/attachment"
)

// A DEL that acts late must not free what its owner gets next.
func TestLateDel(t *testing.T) {
	run(t, "before a first ADD", with(unknownPlugin), func(f *fixture) {
		f.inject(once("DEL", timeoutLate))
		f.allocate("router")
		f.wantStepsPrefix("write adding, DEL, write adding, ADD[], write held")
		f.wantGeneration("router", 1)
		f.sleep(time.Hour)
		f.wantStoreAgrees()
	})
	run(t, "leaves a tombstone while it may act", with(unknownPlugin), func(f *fixture) {
		f.allocate("router")
		f.inject(once("DEL", timeoutLate))
		f.wantError(f.tryRelease("10.0.0.1"), attachment.Failed, "ended with an unknown outcome")
		f.sleep(10 * time.Second) // the second DEL succeeds
		f.wantNoAttachment()
		f.wantRecords(1)
		f.restart()
		f.allocate("router")
		f.wantGeneration("router", 1)
		f.release("10.0.0.1")
		f.sleep(time.Hour)
		f.wantRecords(0)
		f.allocate("router")
		f.wantGeneration("router", 0)
	})
	for name, c := range map[string]struct {
		store      profile.Store
		restart    setup
		generation int
	}{
		"killed":                      {profile.StoreRemote, nil, 1},
		"rebooted, store on the node": {profile.StoreNode, rebooted, 0},
		"rebooted, store on a server": {profile.StoreRemote, rebooted, 1},
	} {
		run(t, name, with(unknownPlugin), func(f *fixture) {
			f.node.profile.Store = c.store
			f.allocate("router")
			f.inject(once("DEL", killBefore))
			_ = f.tryRelease("10.0.0.1")
			f.restart(c.restart)
			f.allocate("router")
			f.wantGeneration("router", c.generation)
		})
	}
	run(t, "impossible if a DEL ends with its process", with(ipv4Only), func(f *fixture) {
		f.allocate("router")
		f.inject(once("DEL", timeoutBefore))
		f.wantError(f.tryRelease("10.0.0.1"), attachment.Failed)
		f.allocate("router")
		f.wantGeneration("router", 0)
	})
}

func TestSingleUseIDs(t *testing.T) {
	run(t, "after a release", with(withProfile(singleUseIDs()), ipv4Only), func(f *fixture) {
		a := f.allocate("router")
		first := a.IDInUse()
		f.release("10.0.0.1")
		f.wantNoAttachment()
		f.wantRecords(0)
		f.restart()
		second := f.allocate("router").IDInUse()
		if first == second || first == a.ContainerID || second == a.ContainerID || !containerid.Match(second) {
			f.t.Errorf("IDs %q and %q; want two unique ones of %q", first, second, a.ContainerID)
		}
	})
	requestable := withProfile(singleUseIDs(), func(p *profile.Profile) {
		p.RepeatedAdd, p.Requests = profile.RepeatedAddRefused, hostLocal().Requests
	})
	run(t, "for each ADD of an acquisition", with(ipv4Only, requestable), func(f *fixture) {
		f.allocate("router")
		f.clearStore()
		f.setStored("a-pod", "10.0.0.1")
		deleted := map[string]bool{}
		f.onCall(func(verb string, c call.Call) {
			deleted[c.ContainerID] = deleted[c.ContainerID] || verb == "DEL"
			if verb == "ADD" && deleted[c.ContainerID] {
				f.t.Errorf("ADD with %s after a DEL", c.ContainerID)
			}
		})
		f.allocate("router")
		f.wantHeld("router", "10.0.0.2")
	})
	run(t, "an earlier one gets its DEL later", with(withProfile(singleUseIDs()), ipv4Only), func(f *fixture) {
		f.inject(once("ADD", timeoutBefore))
		f.wantError(f.tryAllocate("router"), attachment.Failed)
		var first string
		for _, r := range f.node.records {
			first = r.Invocations[0].ContainerID
		}
		if a := f.allocate("router"); a.IDInUse() == first {
			f.t.Fatalf("invocations %+v; want another container ID", a.Invocations)
		}
		time.Sleep(100 * time.Second)
		f.setStored(first, "10.0.0.77") // the timed-out ADD acts late
		f.sleep(time.Hour)
		f.wantStored(1)
		f.wantHeld("router", "10.0.0.1")
	})
}
