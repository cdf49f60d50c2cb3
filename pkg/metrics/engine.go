package metrics

import (
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/delegated-ipam/delegated-ipam/pkg/attachment"
	"github.com/delegated-ipam/delegated-ipam/pkg/journal/record"
)

// engineObserver counts what the engine tells.
type engineObserver struct {
	pools  []string
	events *prometheus.CounterVec
	waits  *prometheus.HistogramVec
}

// Engine returns the observer for the engine.
func (m *Metrics) Engine() attachment.Observer { return m.engine }

func newEngineObserver(f factory, pools []string) *engineObserver {
	o := &engineObserver{
		pools:  pools,
		events: f.counters("events_total", "Actions that have ended.", "action", "family", "pool", "outcome"),
		waits:  f.seconds("queue_wait_seconds", "How long work has waited before it began or was given up.", long(), "queue"),
	}
	for _, w := range []attachment.Wait{attachment.WaitTurn, attachment.WaitProcess} {
		o.waits.WithLabelValues(string(w))
	}
	for _, pool := range append(slices.Clone(pools), other) {
		for action, outcomes := range actions() {
			for _, outcome := range outcomes {
				for _, family := range families() {
					o.events.WithLabelValues(string(action), string(family), pool, string(outcome))
				}
			}
		}
	}
	return o
}

// actions are all actions with the outcomes that each can have: what is done
// without being asked cannot be refused.
func actions() map[attachment.Action][]attachment.EventOutcome {
	asked := []attachment.EventOutcome{attachment.Succeeded, attachment.Denied, attachment.NotDone}
	own := []attachment.EventOutcome{attachment.Succeeded, attachment.NotDone}
	return map[attachment.Action][]attachment.EventOutcome{
		attachment.ActionAllocate: asked, attachment.ActionRestore: asked, attachment.ActionRelease: asked,
		attachment.ActionExpire: own, attachment.ActionRetire: own, attachment.ActionHeal: own, attachment.ActionGiveBack: own,
	}
}

func families() []record.Family { return []record.Family{record.IPv4, record.IPv6} }

// Happened implements attachment.Observer.
func (o *engineObserver) Happened(e attachment.Event) {
	for _, family := range e.Families {
		o.events.WithLabelValues(string(e.Action), string(family), poolLabel(o.pools, e.Pool), string(e.Outcome)).Inc()
	}
}

// Waited implements attachment.Observer.
func (o *engineObserver) Waited(w attachment.Wait, d time.Duration) {
	o.waits.WithLabelValues(string(w)).Observe(d.Seconds())
}

// poolLabel is a pool's value of the label. Clients can ask for any pool, but
// only configured ones have a value of their own.
func poolLabel(pools []string, pool string) string {
	if slices.Contains(pools, pool) {
		return pool
	}
	return other
}
