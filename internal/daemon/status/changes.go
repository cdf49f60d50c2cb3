package status

import (
	"strings"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/go-openapi/strfmt"

	"github.com/delegated-ipam/delegated-ipam/api/models"
)

// change is a status, and when it was observed instead of another one; zero for the first one.
type change struct {
	status string
	at     time.Time
}

// observe records the status of a pool, or the readiness under "". It returns when that last changed, and whether it has
// now; the time is at least from.
func (r *Reporter) observe(pool, status string, from time.Time) (since time.Time, changed bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	last, seen := r.changes[pool]
	if changed = !seen || last.status != status; changed {
		last.status = status
		if seen {
			last.at = time.Now()
		}
		r.changes[pool] = last
	}
	if last.at.After(from) {
		from = last.at
	}
	return from, changed
}

// readySince returns since when the daemon is ready, or not ready for these reasons, and logs a change.
func (r *Reporter) readySince(reasons []string) time.Time {
	status := "Ready"
	if len(reasons) > 0 {
		status = "Not ready"
	}
	since, changed := r.observe("", status, r.started)
	switch {
	case changed && len(reasons) == 0:
		r.Log.Info(status)
		r.Notify("STATUS=" + status)
	case changed:
		r.Log.WithField("reasons", reasons).Warn(status)
		r.Notify("STATUS=" + status + ": " + strings.ReplaceAll(strings.Join(reasons, "; "), "\n", " "))
	}
	return since
}

// Notify sends states to systemd if it waits for them (sd_notify(3), Type=notify).
func (r *Reporter) Notify(states ...string) {
	if _, err := daemon.SdNotify(false, strings.Join(states, "\n")); err != nil {
		r.Log.WithError(err).Warn("systemd cannot be notified")
	}
}

// lastError returns the last failure of the engine or, if that is later, why the daemon is not ready since a time; nil
// if there is neither.
func (r *Reporter) lastError(reasons []string, since time.Time) *models.LastError {
	f := r.Engine.LastFailure()
	if len(reasons) > 0 && since.After(f.At) {
		return &models.LastError{Text: "not ready: " + strings.Join(reasons, "; "), Time: strfmt.DateTime(since)}
	}
	if f.Text == "" {
		return nil
	}
	return &models.LastError{Text: f.Text, Time: strfmt.DateTime(f.At), Owner: f.Owner, Pool: f.Pool, ContainerID: f.ContainerID}
}
