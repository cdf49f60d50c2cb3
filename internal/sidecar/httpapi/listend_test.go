package httpapi_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/delegated-ipam/delegated-ipam/api/models"
	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/engine"
)

// stalledClient is a ResponseWriter whose client reads nothing: each write exceeds its deadline.
type stalledClient struct {
	http.ResponseWriter
	deadline time.Time
}

func (c *stalledClient) SetWriteDeadline(at time.Time) error { c.deadline = at; return nil }
func (c *stalledClient) Write([]byte) (int, error)           { return 0, os.ErrDeadlineExceeded }

// A list ends when its client has left, and soon when its client does not read it.
func TestListEnds(t *testing.T) {
	start := func(t *testing.T) (f *fixture, listed *int) {
		f, listed = newFixture(t, dualStack, &models.DelegatedIPAMStatus{}), new(int)
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
		if *listed > 1 {
			t.Errorf("%d attachments were listed", *listed)
		}
	})
	t.Run("client does not read", func(t *testing.T) {
		f, listed := start(t)
		w := &stalledClient{ResponseWriter: httptest.NewRecorder()}
		before := time.Now()
		f.handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/v1/ipam", http.NoBody))
		if w.deadline.Before(before) || w.deadline.After(time.Now().Add(30*time.Second)) {
			t.Errorf("the deadline is %s after the start", w.deadline.Sub(before))
		}
		if *listed > 1000 {
			t.Errorf("%d attachments were listed", *listed)
		}
		for _, line := range f.log.AllEntries() {
			if line.Level <= logrus.ErrorLevel {
				t.Errorf("error in the log: %s", line.Message)
			}
		}
	})
}
