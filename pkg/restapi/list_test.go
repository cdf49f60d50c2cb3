package restapi_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/pkg/restapi"
)

// measured is a connection that looks, at some of the writes, at the memory in use.
type measured struct {
	http.ResponseWriter
	every, writes int
	live          uint64
	written       int
}

func (m *measured) Write(p []byte) (int, error) {
	if m.writes%m.every == 0 {
		m.live = max(m.live, liveBytes())
	}
	m.writes++
	m.written += len(p)
	return len(p), nil
}

// liveBytes is how much memory is reachable.
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

func TestTheMemoryOfAListDoesNotGrowWithItsLength(t *testing.T) {
	type cost struct{ live, each int }
	list := func(n int) cost {
		f := newFixture(t, dualStack, restapi.Report{})
		for i := range n {
			a := held("health")
			a.Owner = fmt.Sprintf("default/pod-%d", i)
			f.engine.all = append(f.engine.all, a)
		}
		r := httptest.NewRequest(http.MethodGet, "/v1/ipam", nil)
		to := &measured{ResponseWriter: httptest.NewRecorder(), every: max(1, n/1000)}
		before, allocated := liveBytes(), allocatedBytes()
		f.handler.ServeHTTP(to, r)
		allocated = allocatedBytes() - allocated
		if to.written < 400*n {
			t.Errorf("%d attachments are %d bytes", n, to.written)
		}
		return cost{live: int(to.live) - int(before), each: int(allocated) / n}
	}
	few, many := list(1000), list(50_000)
	t.Logf("1,000 attachments: %+v; 50,000: %+v", few, many)
	if many.live > few.live+1<<20 {
		t.Errorf("%d bytes are in use while 50,000 attachments are sent; want about as many as for 1,000, which are %d", many.live, few.live)
	}
	if many.each > few.each+few.each/2 {
		t.Errorf("each of 50,000 attachments allocates %d bytes; want about as many as one of 1,000, which is %d", many.each, few.each)
	}
}
