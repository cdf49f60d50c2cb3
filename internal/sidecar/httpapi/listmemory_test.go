package httpapi_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/api/models"
)

// heapSampler is a ResponseWriter that measures the heap in use at every n-th write.
type heapSampler struct {
	http.ResponseWriter
	every, writes int
	live          uint64
	written       int
}

func (s *heapSampler) Write(p []byte) (int, error) {
	if s.writes%s.every == 0 {
		s.live = max(s.live, liveBytes())
	}
	s.writes++
	s.written += len(p)
	return len(p), nil
}

// liveBytes returns the size of the reachable heap.
func liveBytes() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

func allocatedBytes() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.TotalAlloc
}

func TestListMemory(t *testing.T) {
	type cost struct{ live, each int }
	list := func(n int) cost {
		f := newFixture(t, dualStack, &models.DelegatedIPAMStatus{})
		for i := range n {
			a := held("health")
			a.Owner = fmt.Sprintf("default/pod-%d", i)
			f.engine.all = append(f.engine.all, a)
		}
		r := httptest.NewRequest(http.MethodGet, "/v1/ipam", nil)
		w := &heapSampler{ResponseWriter: httptest.NewRecorder(), every: max(1, n/1000)}
		before, allocated := liveBytes(), allocatedBytes()
		f.handler.ServeHTTP(w, r)
		allocated = allocatedBytes() - allocated
		if w.written < 400*n {
			t.Errorf("%d attachments are %d bytes", n, w.written)
		}
		return cost{live: int(w.live) - int(before), each: int(allocated) / n}
	}
	few, many := list(1000), list(50_000)
	t.Logf("1,000 attachments: %+v; 50,000: %+v", few, many)
	if many.live > few.live+1<<20 {
		t.Errorf("the heap has %d bytes while 50,000 attachments are sent; want about as many as for 1,000: %d", many.live, few.live)
	}
	if many.each > few.each+few.each/2 {
		t.Errorf("%d bytes are allocated for each of 50,000 attachments; want about as many as for each of 1,000: %d", many.each, few.each)
	}
}
