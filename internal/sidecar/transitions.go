package sidecar

import (
	"strings"
	"sync"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/engine"
)

// transitions records when the readiness and the status of each pool last changed. They
// are observed by the reports for callers and for logReadiness only.
type transitions struct {
	log logrus.FieldLogger

	mu    sync.Mutex
	pools map[string]statusSince
	ready statusSince
	// failure is why the sidecar is not ready; empty if it is.
	failure engine.Failure
}

// statusSince is a status and the time of the change to it.
type statusSince struct {
	status string
	since  time.Time
}

// update sets the status and returns since when it holds. The time of a change is changed,
// or the current time where changed is zero.
func (s *statusSince) update(status string, changed time.Time) time.Time {
	if s.since.IsZero() || s.status != status {
		if changed.IsZero() {
			changed = time.Now()
		}
		*s = statusSince{status: status, since: changed}
	}
	return s.since
}

// pool returns since when a pool has a status. A change of its configuration, which has been in use
// since a time, counts from that time.
func (t *transitions) pool(pool, status string, configured time.Time) time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	s, seen := t.pools[pool]
	changed := time.Time{}
	if !seen || configured.After(s.since) {
		s, changed = statusSince{}, configured
	}
	since := s.update(status, changed)
	t.pools[pool] = s
	return since
}

// readiness returns since when the sidecar is ready, or is not, and logs a change. While
// a first result is pending, readiness is unknown and does not change.
func (t *transitions) readiness(reasons []string, pending bool) time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	if pending {
		return t.ready.since
	}
	status, why := "Ready", strings.Join(reasons, "; ")
	if why != "" {
		status = "Not ready"
	}
	changed := t.ready.status != status
	since := t.ready.update(status, time.Time{})
	if text := "not ready: " + why; why == "" {
		t.failure = engine.Failure{}
	} else if changed || t.failure.Text != text {
		t.failure = engine.Failure{Text: text, At: time.Now()}
	}
	switch {
	case changed && why == "":
		t.log.Info(status)
	case changed:
		t.log.WithField("reasons", reasons).Warn(status)
	}
	return since
}

// lastFailure returns why the sidecar is not ready; empty if it is.
func (t *transitions) lastFailure() engine.Failure {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.failure
}
