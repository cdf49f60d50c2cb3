package metrics

import (
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/delegated-ipam/delegated-ipam/pkg/attachment"
	"github.com/delegated-ipam/delegated-ipam/pkg/journal/record"
)

// engineObserver counts what the engine tells. Its series are looked up once, not for
// each event.
type engineObserver struct {
	pools   []string
	counted *prometheus.CounterVec
	events  map[event]prometheus.Counter
	waits   map[attachment.Queue]prometheus.Observer
}

// event is what a series counts.
type event struct {
	action  attachment.Action
	family  record.Family
	pool    string
	outcome attachment.EventOutcome
}

// Engine returns the observer for the engine.
func (m *Metrics) Engine() attachment.Observer { return m.engine }

func newEngineObserver(f factory, pools []string) *engineObserver {
	o := &engineObserver{
		pools: pools, events: map[event]prometheus.Counter{}, waits: map[attachment.Queue]prometheus.Observer{},
		counted: f.counters("events_total", "Actions that have ended.", "action", "family", "pool", "outcome"),
	}
	waits := f.seconds("queue_wait_seconds", "How long work has waited before it began or was given up.", long(), "queue")
	for _, w := range []attachment.Queue{attachment.QueueEntry, attachment.QueueProcess} {
		o.waits[w] = waits.WithLabelValues(string(w))
	}
	for _, pool := range append(slices.Clone(pools), other) {
		for action, outcomes := range actions() {
			for _, outcome := range outcomes {
				for _, family := range families() {
					e := event{action, family, pool, outcome}
					o.events[e] = o.counter(e)
				}
			}
		}
	}
	return o
}

// actions are all actions with the outcomes that each can have: what is done
// without being asked cannot be refused.
func actions() map[attachment.Action][]attachment.EventOutcome {
	asked := []attachment.EventOutcome{attachment.OutcomeSuccess, attachment.OutcomeRejected, attachment.OutcomeFailed}
	own := []attachment.EventOutcome{attachment.OutcomeSuccess, attachment.OutcomeFailed}
	return map[attachment.Action][]attachment.EventOutcome{
		attachment.ActionAllocate: asked, attachment.ActionRestore: asked, attachment.ActionRelease: asked,
		attachment.ActionExpire: own, attachment.ActionRetire: own, attachment.ActionReacquire: own, attachment.ActionCleanup: own,
	}
}

func families() []record.Family { return []record.Family{record.IPv4, record.IPv6} }

// counter is the series of an event.
func (o *engineObserver) counter(e event) prometheus.Counter {
	return o.counted.WithLabelValues(string(e.action), string(e.family), e.pool, string(e.outcome))
}

// ActionDone implements attachment.Observer. An event that was not expected gets its
// series with it.
func (o *engineObserver) ActionDone(happened attachment.Event) {
	for _, family := range happened.Families {
		e := event{happened.Action, family, poolLabel(o.pools, happened.Pool), happened.Outcome}
		counter, expected := o.events[e]
		if !expected {
			counter = o.counter(e)
		}
		counter.Inc()
	}
}

// QueueWait implements attachment.Observer.
func (o *engineObserver) QueueWait(w attachment.Queue, d time.Duration) {
	if wait, expected := o.waits[w]; expected {
		wait.Observe(d.Seconds())
	}
}

// poolLabel is a pool's value of the label. Clients can ask for any pool, but
// only configured ones have a value of their own.
func poolLabel(pools []string, pool string) string {
	if slices.Contains(pools, pool) {
		return pool
	}
	return other
}
