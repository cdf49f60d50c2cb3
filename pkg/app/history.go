package app

import (
	"strings"
	"sync"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/delegated-ipam/delegated-ipam/pkg/restapi"
)

// history is what those who asked have seen: since when things are as they are.
// Nobody looks by himself: a probe does, and a change of the configuration.
type history struct {
	log logrus.FieldLogger

	mu    sync.Mutex
	pools map[string]spell
	ready spell
	// failure is why it was not ready last.
	failure restapi.LastError
}

// spell is a time in which something said the same.
type spell struct {
	says  string
	since time.Time
}

// note returns since when it says so. What has just begun has done so at began,
// or now if that is not known.
func (s *spell) note(says string, began time.Time) time.Time {
	if s.since.IsZero() || s.says != says {
		if began.IsZero() {
			began = time.Now()
		}
		*s = spell{says: says, since: began}
	}
	return s.since
}

// pool returns since when a pool is as reported. What its configuration says has
// a time of its own.
func (h *history) pool(p restapi.PoolReport) time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	s, seen := h.pools[p.Pool]
	began := time.Time{}
	if !seen || p.Since.After(s.since) {
		s, began = spell{}, p.Since
	}
	since := s.note(p.Error+"\n"+p.NotReady, began)
	h.pools[p.Pool] = s
	return since
}

// readiness returns since when it is ready, or is not. A change is logged. While an
// answer is still awaited (not settled) it is not known whether there is one.
func (h *history) readiness(reasons []string, settled bool) time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !settled {
		return h.ready.since
	}
	says, why := "Ready", strings.Join(reasons, "; ")
	if why != "" {
		says = "Not ready"
	}
	changed := h.ready.says != says
	since := h.ready.note(says, time.Time{})
	if text := "not ready: " + why; why != "" && (changed || h.failure.Text != text) {
		h.failure = restapi.LastError{Text: text, At: time.Now()}
	}
	switch {
	case changed && why == "":
		h.log.Info(says)
	case changed:
		h.log.WithField("reasons", reasons).Warn(says)
	}
	return since
}

// lastFailure is why it was not ready last; empty if it always was.
func (h *history) lastFailure() restapi.LastError {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.failure
}
