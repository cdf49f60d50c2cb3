package attachment

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/delegated-ipam/delegated-ipam/pkg/defaults"
	"github.com/delegated-ipam/delegated-ipam/pkg/delegate/call"
	"github.com/delegated-ipam/delegated-ipam/pkg/journal/record"
)

// manyAddresses gives the plugin one family with as many addresses as it can have.
func manyAddresses(n *fakeNode, _ *Options) { n.rangeSize, n.ipv6 = 255, false }

func ownersOf(all []Attachment) []string {
	var names []string
	for _, a := range all {
		names = append(names, a.Pool+"/"+a.Owner)
	}
	return names
}

func TestList(t *testing.T) {
	run(t, "sorted by pool and owner", func(t *testing.T) {
		f := newFixture(t, manyAddresses, bluePool)
		var want []string
		for i := range 2*listChunk + 1 {
			r := AllocateRequest{Owner: fmt.Sprintf("owner-%d", i), Pool: []string{"blue", defaults.Pool}[i%2]}
			f.allocateWith(r)
			want = append(want, r.Pool+"/"+r.Owner)
		}
		slices.Sort(want)
		if got := ownersOf(f.List()); !slices.Equal(got, want) {
			t.Errorf("got %q; want %q", got, want)
		}
	})
	run(t, "changes during the iteration", func(t *testing.T) {
		f := newFixture(t, manyAddresses)
		owner := func(i int) string { return fmt.Sprintf("owner-%04d", i) }
		for i := range 3 * listChunk {
			f.allocate(owner(i))
		}
		released, reallocated := owner(2*listChunk), owner(2*listChunk+1)
		seen := map[string]bool{}
		for a := range f.All() {
			if len(seen) == 0 { // in the first chunk
				f.releaseAll(f.get(released))
				f.releaseAll(f.get(reallocated))
				f.allocate(reallocated)
				f.allocate("zebra")
			}
			if seen[a.Owner] {
				t.Errorf("%s is listed twice", a.Owner)
			}
			seen[a.Owner] = true
		}
		if seen[released] || len(seen) != 3*listChunk-1 {
			t.Errorf("%d are listed, the released one: %t; want %d without it", len(seen), seen[released], 3*listChunk-1)
		}
	})
	run(t, "iteration is stopped", func(t *testing.T) {
		f := newFixture(t)
		f.allocate("a")
		f.allocate("b")
		for a := range f.All() {
			if a.Owner != "a" {
				t.Errorf("after the end came %s", a.Owner)
			}
			break
		}
	})
}

// In real time, because it needs parallel goroutines.
func TestListConcurrent(t *testing.T) {
	f := newFixture(t, manyAddresses)
	for i := range 2 * listChunk {
		f.allocate(fmt.Sprintf("stays-%04d", i))
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
				f.releaseAll(f.allocate(fmt.Sprintf("goes-%d-%d", i, n%50)))
			}
		})
	}
	for range 50 {
		all := ownersOf(f.List())
		if !slices.IsSorted(all) || len(slices.Compact(slices.Clone(all))) != len(all) {
			t.Errorf("not sorted, or an owner twice: %q", all)
		}
		stays := slices.DeleteFunc(all, func(name string) bool { return name < "default/stays" })
		if len(stays) != 2*listChunk {
			t.Errorf("%d of %d unchanged attachments are listed", len(stays), 2*listChunk)
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
			e.load(record.Record{Owner: owner, Pool: defaults.Pool, ContainerID: owner, State: record.Releasing})
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
	run(t, "by pool", func(t *testing.T) {
		f := newFixture(t)
		f.allocate("router")
		f.allocate("health")
		f.release("fd00::2")
		f.inject(always(refused, "DEL"))
		released := time.Now()
		f.wantError(f.tryRelease("10.0.0.2"), Failed)
		got := f.Summaries()[defaults.Pool]
		if got.States[record.Held] != 1 || got.States[record.Releasing] != 1 || got.Addresses[record.IPv4] != 1 || got.Addresses[record.IPv6] != 1 || !got.PendingRelease.Equal(released) {
			t.Errorf("got %+v; want one held with two addresses and one releasing since %s", got, released)
		}
		if twice := got.Add(got); twice.States[record.Held] != 2 || twice.Addresses[record.IPv4] != 2 || !twice.PendingRelease.Equal(released) {
			t.Errorf("added to itself: %+v", twice)
		}
		if sum := (Summary{}).Add(got); !sum.PendingRelease.Equal(released) {
			t.Errorf("added to nothing: %+v", sum)
		}
		setLost(f)
		if lost := f.Summaries()[defaults.Pool].Lost; lost != 1 {
			t.Errorf("%d lost; want one", lost)
		}
	})
}

func TestPlugins(t *testing.T) {
	entryWith := func(pool string, state record.State, binaries ...string) *entry {
		rec := &record.Record{State: state}
		for _, b := range binaries {
			rec.Invocations = append(rec.Invocations, call.Invocation{Plugin: "host-local", Binary: b})
		}
		return &entry{key: key{pool: pool}, rec: rec}
	}
	e := &Engine{byOwner: map[key]*entry{
		{"default", "router"}:    entryWith("default", record.Held, "/b/host-local"),
		{"default", "health"}:    entryWith("default", record.Releasing, "/b/host-local", "/a/host-local"),
		{"blue", "router"}:       entryWith("blue", record.Adding, "/a/host-local"),
		{"default", "tombstone"}: entryWith("default", record.Tombstone, "/c/host-local"),
		{"default", "no record"}: {key: key{pool: "default"}},
	}}
	want := []PluginUse{
		{Pool: "blue", Plugin: "host-local", Binary: "/a/host-local"},
		{Pool: "default", Plugin: "host-local", Binary: "/a/host-local"},
		{Pool: "default", Plugin: "host-local", Binary: "/b/host-local"},
	}
	if got := e.Plugins(); !slices.Equal(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}
