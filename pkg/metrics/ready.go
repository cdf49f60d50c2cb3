package metrics

import (
	"context"
	"time"
)

// patience is how long a scrape waits for readiness: far less than Prometheus
// waits for the scrape (scrape_timeout, by default 10 s), so that a plugin that
// hangs in STATUS takes no other metric along.
const patience = 3 * time.Second

// Readiness asks whether the sidecar is ready, once at a time.
type Readiness struct {
	ask    func(context.Context) bool
	asking chan struct{}
}

// NewReadiness returns what asks by ask, which may take as long as a plugin call.
func NewReadiness(ask func(context.Context) bool) *Readiness {
	return &Readiness{ask: ask, asking: make(chan struct{}, 1)}
}

// value is 1 if ready. Not to be told in time is not to be ready.
func (r *Readiness) value() float64 {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case r.asking <- struct{}{}:
	case <-timer.C:
		return 0
	}
	answered := make(chan bool, 1)
	go func() {
		defer func() { <-r.asking }()
		answered <- r.ask(context.Background())
	}()
	select {
	case ready := <-answered:
		if ready {
			return 1
		}
	case <-timer.C:
	}
	return 0
}
