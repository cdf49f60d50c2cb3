package engine

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/delegated-ipam/delegated-ipam/internal/containerid"
	"github.com/delegated-ipam/delegated-ipam/internal/daemon/attachment"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/profile"
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

// Some plugins refuse the DEL of an ID that holds nothing.
func TestStrictDEL(t *testing.T) {
	strict := func(n *fakeNode, _ *Options) { n.strictDel = true }
	notHeld := func(n *fakeNode, _ *Options) { n.profile.DelNotHeld = profile.Lost{Message: "nothing is held"} }
	full := func(f *fixture) {
		f.inject(always(refused, "ADD"))
		f.wantError(f.tryAllocate("router"), attachment.Failed)
		if _, err := f.AddContainer(context.Background(), "net", podContainer("one", "web-0")); err == nil {
			f.t.Fatal("the ADD of a container succeeded")
		}
	}
	run(t, "the profile says how", with(unknownPlugin, strict, notHeld), func(f *fixture) {
		full(f)
		f.wantGone()
		f.del("one", "web-0") // of a runtime that repeats its DEL
		f.wantGone()
	})
	run(t, "nothing is known about it", with(unknownPlugin, strict), func(f *fixture) {
		full(f)
		f.del("one", "web-0")
		f.sleep(239 * time.Second)
		if len(f.List()) == 0 {
			f.t.Error("a record was removed while its ADD may act")
		}
		f.sleep(time.Hour)
		f.wantGone()
		assumed := func(e *logrus.Entry) bool { return strings.Contains(e.Message, "assumed to hold nothing") }
		if !slices.ContainsFunc(f.logged.AllEntries(), assumed) {
			f.t.Error("the log does not have the assumption")
		}
	})
	for name, c := range map[string]struct {
		add, del fault
		held     bool
	}{
		"an ADD was killed, and had allocated nothing": {add: timeoutBefore},
		"an ADD was killed, and allocates later":       {add: timeoutLate},
		"a DEL was killed, and had released":           {del: timeoutAfter, held: true},
		"a DEL was killed, and had released nothing":   {del: timeoutBefore, held: true},
	} {
		run(t, name, with(unknownPlugin, strict), func(f *fixture) {
			f.inject(each(map[string]fault{"ADD": c.add, "DEL": c.del}))
			if _, err := f.AddContainer(context.Background(), "net", podContainer("one", "web-0")); (err == nil) != c.held {
				f.t.Fatal(err)
			}
			if _, err := f.DelContainer(context.Background(), "net", podContainer("one", "web-0")); err == nil {
				f.t.Fatal("the DEL of a container succeeded")
			}
			f.inject(nil)
			f.sleep(time.Hour)
			f.wantGone()
		})
	}
	run(t, "what it holds stays", with(unknownPlugin), func(f *fixture) {
		f.allocate("router")
		f.inject(always(outage, "DEL"))
		f.wantError(f.tryRelease("10.0.0.1"), attachment.Failed)
		f.sleep(time.Hour)
		l := f.List()
		if len(l) != 1 || l[0].State != attachment.Releasing {
			f.t.Fatalf("%+v; want what could not be released", l)
		}
		if held := f.node.store[l[0].IDInUse()]; len(held) != 2 {
			f.t.Errorf("the plugin holds %v; want that of one ADD before a DEL", held)
		}
		f.inject(nil)
		f.sleep(time.Hour)
		f.wantGone()
	})
	run(t, "an address that it holds is released", with(unknownPlugin, strict), func(f *fixture) {
		f.allocate("router")
		f.release("10.0.0.1")
		f.wantGone()
	})
}
