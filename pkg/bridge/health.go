package bridge

import (
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
	// exhausted of the first of the refused acquisitions.
	observed, progressed, exhausted instant
}

// instant is a time, or none.
type instant struct{ at atomic.Pointer[time.Time] }

func (i *instant) set(at time.Time) { i.at.Store(&at) }

func (i *instant) clear() { i.at.Store(nil) }

// age returns the time since the instant, 0 for none.
func (i *instant) age() time.Duration {
	if at := i.at.Load(); at != nil {
		return time.Since(*at)
	}
	return 0
}

// newHealth returns the health of a bridge that starts now.
func newHealth() *health {
	h := &health{}
	h.observed.set(time.Now())
	h.progressed.set(time.Now())
	return h
}

// notReady returns the reason why the node is not served; nil if it is.
func (h *health) notReady() error {
	if !h.published.Load() {
		return fmt.Errorf("no address is published in spec.ipam.pool; for the reason see the log and the Events of the Node")
	}
	if age := h.observed.age(); age > observationLimit {
		return fmt.Errorf("sidecar and CiliumNode were last observed %s ago; for the reason see the log and the Events of the Node", age.Round(time.Second))
	}
	return nil
}

// stuck returns the reason to restart the process; nil for none.
func (h *health) stuck() error {
	if age := h.progressed.age(); age > progressLimit {
		return fmt.Errorf("no progress for %s", age.Round(time.Second))
	}
	return nil
}
