package httpapi_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/delegated-ipam/delegated-ipam/internal/daemon/engine"
	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
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
		f := newDual(t)
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
		check.True(t, w.written >= 400*n, "%d attachments are %d bytes", n, w.written)
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

// stalledClient is a ResponseWriter whose client reads nothing: each write exceeds its deadline.
type stalledClient struct {
	http.ResponseWriter
	deadline time.Time
}

func (c *stalledClient) SetWriteDeadline(at time.Time) error { c.deadline = at; return nil }
func (c *stalledClient) Write([]byte) (int, error)           { return 0, os.ErrDeadlineExceeded }

// A list ends when its client has left, and soon when its client does not read it.
//
//evidence:operate/security lists that are not read
func TestListEnds(t *testing.T) {
	start := func(t *testing.T) (f *fixture, listed *int) {
		f, listed = newDual(t), new(int)
		f.engine.each = func(yield func(engine.Attachment) bool) {
			for range 10_000 {
				*listed++
				if !yield(held("health")) {
					return
				}
			}
		}
		return f, listed
	}
	t.Run("client left", func(t *testing.T) {
		f, listed := start(t)
		ctx, leave := context.WithCancel(t.Context())
		leave()
		f.handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, http.MethodGet, "/v1/ipam", http.NoBody))
		check.True(t, *listed <= 1, "%d attachments were listed", *listed)
	})
	t.Run("client does not read", func(t *testing.T) {
		f, listed := start(t)
		w := &stalledClient{ResponseWriter: httptest.NewRecorder()}
		before := time.Now()
		f.handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/v1/ipam", http.NoBody))
		if w.deadline.Before(before) || w.deadline.After(time.Now().Add(30*time.Second)) {
			t.Errorf("the deadline is %s after the start", w.deadline.Sub(before))
		}
		check.True(t, *listed <= 1000, "%d attachments were listed", *listed)
		for _, line := range f.log.AllEntries() {
			check.True(t, line.Level > logrus.ErrorLevel, "error in the log: %s", line.Message)
		}
	})
}
