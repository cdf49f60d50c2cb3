package bridge

import (
	"cmp"
	"fmt"
	"sync/atomic"
	"time"
)

const (
	// observationLimit is how old the last successful observation of a ready bridge may be: several
	// times resync.
	observationLimit = 3 * time.Minute
	// progressLimit is how long one step of a healthy bridge may take. A request to the sidecar ends
	// after 90 s.
	progressLimit = 5 * time.Minute
)

// health is the state that /readyz and /healthz report. Its methods may be called concurrently.
type health struct {
	// published reports whether an entry of the bridge is in the pool.
	published atomic.Bool
	// observed is the time of the last successful observation, progressed of the last step, and
	// exhausted of the first of the refused acquisitions, silent of the agent's first missing response.
	observed, progressed, exhausted, silent instant
	// cause returns the present conditions of the node; empty for none.
	cause func() string
}

// instant is a time, or none: the zero time.
type instant struct{ at atomic.Pointer[time.Time] }

func (i *instant) set(at time.Time) { i.at.Store(&at) }

// age returns the time since the instant, 0 for none.
func (i *instant) age() time.Duration {
	if at := i.at.Load(); at != nil && !at.IsZero() {
		return time.Since(*at)
	}
	return 0
}

func newHealth() *health {
	h := &health{cause: func() string { return "" }}
	h.observed.set(time.Now())
	h.progressed.set(time.Now())
	return h
}

// notReady returns the reason why the node is not served, with its cause; nil if it is.
func (h *health) notReady() error {
	var reason string
	switch age := h.observed.age(); {
	case !h.published.Load():
		reason = "no address is published in spec.ipam.pool"
	case age > observationLimit:
		reason = fmt.Sprintf("sidecar and CiliumNode were last observed %s ago", age.Round(time.Second))
	default:
		return nil
	}
	return fmt.Errorf("%s: %s", reason, cmp.Or(h.cause(), "no request has failed yet"))
}

// stuck returns the reason to restart the process; nil for none.
func (h *health) stuck() error {
	if age := h.progressed.age(); age > progressLimit {
		return fmt.Errorf("no progress for %s", age.Round(time.Second))
	}
	return nil
}
