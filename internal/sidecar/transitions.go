package sidecar

import (
	"strings"
	"sync"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/httpapi"
)

// transitions records when the readiness and the status of each pool last changed. They
// are observed by reports only: those of callers, and those of logReadiness.
type transitions struct {
	log logrus.FieldLogger

	mu    sync.Mutex
	pools map[string]statusSince
	ready statusSince
	// failure is why the sidecar is not ready; empty if it is.
	failure httpapi.LastError
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

// pool returns since when a pool has the reported status. A change of its configuration
// has the time that the report has.
func (t *transitions) pool(p httpapi.PoolReport) time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	s, seen := t.pools[p.Pool]
	changed := time.Time{}
	if !seen || p.Since.After(s.since) {
		s, changed = statusSince{}, p.Since
	}
	since := s.update(p.Error+"\n"+p.NotReady, changed)
	t.pools[p.Pool] = s
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
		t.failure = httpapi.LastError{}
	} else if changed || t.failure.Text != text {
		t.failure = httpapi.LastError{Text: text, At: time.Now()}
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
func (t *transitions) lastFailure() httpapi.LastError {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.failure
}
