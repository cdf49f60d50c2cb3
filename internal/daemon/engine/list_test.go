package engine

import (
	"fmt"
	"net/netip"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/daemon/attachment"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
	"github.com/delegated-ipam/delegated-ipam/pkg/client"
)

func ownersOf(all []Attachment) []string {
	var names []string
	for _, a := range all {
		names = append(names, a.Pool+"/"+a.Owner)
	}
	return names
}

// A probe waits for no lock of the engine.
func TestProbesNeedNoLock(t *testing.T) {
	run(t, "held", "release-delay=1h", func(f *fixture) {
		f.do("allocate router; allocate health; release 10.0.0.2 fd00::2")
		f.mu.Lock() // a call that waits for it never returns
		defer f.mu.Unlock()
		if r, ok := f.Record(client.DefaultPool, "router"); !ok || !r.Holds(addr("10.0.0.1")) {
			f.t.Errorf("router has %v", r)
		}
		if r, _ := f.Record(client.DefaultPool, "health"); r.State != attachment.Cooldown {
			f.t.Errorf("health is %s", r.State)
		}
		if _, ok := f.Record(client.DefaultPool, "ingress"); ok {
			f.t.Error("ingress has a record")
		}
		f.Count(attachment.EventLost)
		f.LastFailure()
	})
	run(t, "after a release, and after a start", "", func(f *fixture) {
		f.do("allocate router; restart")
		if _, ok := f.Record(client.DefaultPool, "router"); !ok {
			f.t.Error("router has no record")
		}
		f.do("release 10.0.0.1 fd00::1")
		if r, ok := f.Record(client.DefaultPool, "router"); ok {
			f.t.Errorf("router has %v", r)
		}
	})
}

// A DEL that was left is dropped if its container has no record.
func TestRecordIsSeenWhileItChanges(t *testing.T) {
	run(t, "held", "", func(f *fixture) {
		f.do("allocate router")
		done := make(chan struct{})
		go func() {
			defer close(done)
			for range 20_000 {
				f.publish("router", func(s *attachment.Status) { r := s.Rec.Clone(); s.Rec = &r })
			}
		}()
		missing := 0
		for changing := true; changing; {
			select {
			case <-done:
				changing = false
			default:
				if _, ok := f.Record(client.DefaultPool, "router"); !ok {
					missing++
				}
			}
		}
		if missing > 0 {
			f.t.Errorf("router had no record %d times", missing)
		}
	})
}

func TestList(t *testing.T) {
	run(t, "sorted by pool and owner", "size=255 ipv4 blue", func(f *fixture) {
		var want []string
		for i := range 2*listPage + 1 {
			owner, pool := fmt.Sprintf("owner-%d", i), []string{"blue", client.DefaultPool}[i%2]
			f.do("allocate " + owner + " pool=" + pool)
			want = append(want, pool+"/"+owner)
		}
		slices.Sort(want)
		if got := ownersOf(f.List()); !slices.Equal(got, want) {
			f.t.Errorf("got %q; want %q", got, want)
		}
	})
	run(t, "changes during the iteration", "size=255 ipv4", func(f *fixture) {
		owner := func(i int) string { return fmt.Sprintf("owner-%04d", i) }
		for i := range 3 * listPage {
			f.do("allocate " + owner(i))
		}
		released, reallocated := owner(2*listPage), owner(2*listPage+1)
		seen := map[string]bool{}
		for a := range f.All() {
			if len(seen) == 0 { // in the first chunk
				f.do("release-all " + released + "; release-all " + reallocated + "; allocate " + reallocated + "; allocate zebra")
			}
			if seen[a.Owner] {
				f.t.Errorf("%s is listed twice", a.Owner)
			}
			seen[a.Owner] = true
		}
		if seen[released] || !seen["zebra"] || len(seen) != 3*listPage {
			f.t.Errorf("%d are listed, the released one: %t, the new one: %t; want %d", len(seen), seen[released], seen["zebra"], 3*listPage)
		}
	})
	run(t, "the first one costs as much among many", "", func(f *fixture) {
		const n = 20_000
		f.mu.Lock()
		for i := range n {
			id := fmt.Sprintf("id-%05d", i)
			f.load(attachment.Record{Owner: id, Pool: client.DefaultPool, ContainerID: id, State: attachment.Cooldown, ReleaseAt: time.Now().Add(time.Hour)})
		}
		f.mu.Unlock()
		synctest.Wait()
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for range f.All() {
			break
		}
		runtime.ReadMemStats(&after)
		// A list of pointers to all of them would have 8 bytes for each.
		if used := after.TotalAlloc - before.TotalAlloc; used > 8*n {
			f.t.Errorf("%d bytes were allocated", used)
		}
	})
}

// In real time, because it needs parallel goroutines.
func TestListConcurrent(t *testing.T) {
	f := newFixture(t, "size=255 ipv4")
	ask := func(words ...any) string {
		answer, err := f.answered(wordsOf(fmt.Sprintln(words...)))
		if err != nil {
			t.Error(err)
		}
		return answer
	}
	for i := range 2 * listPage {
		ask("allocate", fmt.Sprintf("stays-%04d", i))
	}
	var changing sync.WaitGroup
	end := make(chan struct{})
	for i := range 4 {
		changing.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-end:
					return
				default:
				}
				ask("release", ask("allocate", fmt.Sprintf("goes-%d-%d", i, n%50)))
			}
		})
	}
	for range 50 {
		all := ownersOf(f.List())
		if !slices.IsSorted(all) || len(slices.Compact(slices.Clone(all))) != len(all) {
			t.Errorf("not sorted, or an owner twice: %q", all)
		}
		stays := slices.DeleteFunc(all, func(name string) bool { return name < "default/stays" })
		if len(stays) != 2*listPage {
			t.Errorf("%d of %d unchanged attachments are listed", len(stays), 2*listPage)
		}
	}
	close(end)
	changing.Wait()
}

// The memory of a list does not grow with the number of attachments.
func TestListAllocations(t *testing.T) {
	allocations := func(attachments int) float64 {
		n := newFakeNode()
		e := New(defaultOptions(), n, n)
		for i := range attachments {
			owner := fmt.Sprintf("owner-%d", i)
			e.load(attachment.Record{Owner: owner, Pool: client.DefaultPool, ContainerID: owner, State: attachment.Releasing})
		}
		return testing.AllocsPerRun(1, func() {
			seen := 0
			for range e.All() {
				seen++
			}
			if seen != attachments {
				t.Errorf("%d of %d are listed", seen, attachments)
			}
		})
	}
	if few, many := allocations(1000), allocations(20_000); many > few {
		t.Errorf("a list of 20,000 allocates %.0f times; want at most %.0f, as one of 1,000", many, few)
	}
}

func TestSummaries(t *testing.T) {
	run(t, "by pool", "", func(f *fixture) {
		f.do("allocate router; allocate health; release fd00::2; fault DEL=refused")
		released := time.Now()
		f.do("release 10.0.0.2 -> failed")
		got := f.Summaries()[client.DefaultPool]
		if got.States[attachment.Held] != 1 || got.States[attachment.Releasing] != 1 || got.Addresses[attachment.IPv4] != 1 || got.Addresses[attachment.IPv6] != 1 ||
			got.Leased[attachment.IPv4] != 2 || got.Leased[attachment.IPv6] != 2 || !got.PendingRelease.Equal(released) {
			f.t.Errorf("got %+v; want one held with two addresses and one releasing with two since %s", got, released)
		}
		if twice := got.Add(got); twice.States[attachment.Held] != 2 || twice.Addresses[attachment.IPv4] != 2 || twice.Leased[attachment.IPv6] != 4 || !twice.PendingRelease.Equal(released) {
			f.t.Errorf("added to itself: %+v", twice)
		}
		if sum := (Summary{}).Add(got); !sum.PendingRelease.Equal(released) {
			f.t.Errorf("added to nothing: %+v", sum)
		}
		f.do("publish router lost")
		if lost := f.Summaries()[client.DefaultPool].Lost; lost != 1 {
			f.t.Errorf("%d lost; want one", lost)
		}
	})
}

func TestPlugins(t *testing.T) {
	entryWith := func(pool, owner string, state attachment.State, binaries ...string) *entry {
		rec := &attachment.Record{State: state}
		for _, b := range binaries {
			rec.Invocations = append(rec.Invocations, call.Invocation{Plugin: "host-local", Binary: b})
		}
		return &entry{Key: attachment.Key{Pool: pool, Owner: owner}, Status: attachment.Status{Rec: rec}}
	}
	e := &Engine{entries: entries{sorted: []*entry{
		entryWith("blue", "router", attachment.Adding, "/a/host-local"),
		entryWith("default", "health", attachment.Releasing, "/b/host-local", "/a/host-local"),
		{Key: attachment.Key{Pool: "default", Owner: "no record"}},
		entryWith("default", "router", attachment.Held, "/b/host-local"),
		entryWith("default", "tombstone", attachment.Tombstone, "/c/host-local"),
	}}}
	want := []PluginUse{
		{Pool: "blue", Plugin: "host-local", Binary: "/a/host-local"},
		{Pool: "default", Plugin: "host-local", Binary: "/a/host-local"},
		{Pool: "default", Plugin: "host-local", Binary: "/b/host-local"},
	}
	if got := e.Plugins(); !slices.Equal(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// An attachment that is being adopted has its addresses before it has a record.
func TestConflictWithoutRecord(t *testing.T) {
	addresses := []netip.Addr{addr("10.0.0.1")}
	adopting, asking := &entry{}, &entry{}
	held := &entry{Status: attachment.Status{Rec: &attachment.Record{State: attachment.Held}}}
	for name, c := range map[string]struct {
		have []*entry
		want *entry
	}{
		"one is adopting":           {[]*entry{adopting}, adopting},
		"adopting, and one holds":   {[]*entry{adopting, held}, held},
		"one holds, and adopting":   {[]*entry{held, adopting}, held},
		"only the one that asks":    {[]*entry{asking}, nil},
		"the asking one has it too": {[]*entry{asking, adopting}, adopting},
	} {
		t.Run(name, func(t *testing.T) {
			x := index{}
			for _, a := range c.have {
				x.add(a, "net", addresses)
			}
			if got, _ := x.conflict(asking, "net", addresses, false); got != c.want {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
		})
	}
}
