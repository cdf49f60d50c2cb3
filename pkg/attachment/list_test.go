package attachment

import (
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/pkg/defaults"
	"github.com/delegated-ipam/delegated-ipam/pkg/journal/record"
)

// List is every attachment at once.
func (e *Engine) List() []Attachment { return slices.Collect(e.All()) }

func owners(all []Attachment) []string {
	var names []string
	for _, a := range all {
		names = append(names, a.Pool+"/"+a.Owner)
	}
	return names
}

func TestAttachmentsAreListedByPoolAndOwner(t *testing.T) {
	play(t, "in any number", func(w *fakeNode) { w.network["blue"] = "other"; w.size = 255; w.ipv6 = false }, func(s scene) {
		var want []string
		for i := range 2*listChunk + 1 {
			pool := []string{"blue", defaults.Pool}[i%2]
			owner := fmt.Sprintf("owner-%d", i)
			if _, err := s.ask(AllocateRequest{Owner: owner, Pool: pool}); err != nil {
				s.Fatal(err)
			}
			want = append(want, pool+"/"+owner)
		}
		slices.Sort(want)
		if got := owners(s.List()); !slices.Equal(got, want) {
			s.Errorf("got %q; want %q", got, want)
		}
	}, func(o *Options) { o.Pools = []string{defaults.Pool, "blue"} })
	play(t, "as each is when its turn comes", func(w *fakeNode) { w.size = 255; w.ipv6 = false }, func(s scene) {
		for i := range 3 * listChunk {
			s.allocate(fmt.Sprintf("owner-%04d", i))
		}
		seen := map[string]record.State{}
		for a := range s.All() {
			if len(seen) == 0 { // in the first part
				for _, i := range []int{2 * listChunk, 2*listChunk + 1} {
					b, _ := s.Lookup(defaults.Pool, fmt.Sprintf("owner-%04d", i))
					s.skipDelay(b.Result.Addresses[0].Addr().String())
				}
				s.allocate(fmt.Sprintf("owner-%04d", 2*listChunk+1))
				s.allocate("zebra")
			}
			if seen[a.Owner] != "" {
				s.Errorf("%s is listed twice", a.Owner)
			}
			seen[a.Owner] = a.State
		}
		if _, ok := seen[fmt.Sprintf("owner-%04d", 2*listChunk)]; ok || len(seen) != 3*listChunk-1 {
			s.Errorf("%d are listed, the released one: %t; want %d without it", len(seen), ok, 3*listChunk-1)
		}
	})
	play(t, "no further than is wanted", nil, func(s scene) {
		s.allocate("a")
		s.allocate("b")
		for a := range s.All() {
			if a.Owner != "a" {
				s.Errorf("after the end came %s", a.Owner)
			}
			break
		}
	})
}

func TestAListIsWholeWhileOthersChange(t *testing.T) {
	w := newWorld()
	w.ipv6, w.size = false, 255
	e := w.start(t)
	s := scene{t, w, e}
	for i := range 2 * listChunk {
		s.allocate(fmt.Sprintf("stays-%04d", i))
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
				a := s.allocate(fmt.Sprintf("goes-%d-%d", i, n%50))
				s.skipDelay(a.Result.Addresses[0].Addr().String())
			}
		})
	}
	for range 50 {
		all := owners(e.List())
		if !slices.IsSorted(all) || len(slices.Compact(slices.Clone(all))) != len(all) {
			t.Errorf("not sorted, or an owner twice: %q", all)
		}
		stays := 0
		for _, name := range all {
			if name >= "default/stays" {
				stays++
			}
		}
		if stays != 2*listChunk {
			t.Errorf("%d of %d that stay are listed", stays, 2*listChunk)
		}
	}
	close(end)
	changing.Wait()
}

func TestAListAllocatesNothingForEachAttachment(t *testing.T) {
	listed := func(n int) (allocations float64) {
		w := newWorld()
		e := New(options(), w, fakePlugin{w})
		for i := range n {
			owner := fmt.Sprintf("owner-%d", i)
			e.load(record.Record{Owner: owner, Pool: defaults.Pool, ContainerID: owner, State: record.Releasing})
		}
		return testing.AllocsPerRun(1, func() {
			seen := 0
			for range e.All() {
				seen++
			}
			if seen != n {
				t.Errorf("%d of %d are listed", seen, n)
			}
		})
	}
	if few, many := listed(1000), listed(20_000); many > few {
		t.Errorf("a list of 20,000 allocates %.0f times; want no more than one of 1,000, which is %.0f", many, few)
	}
}
