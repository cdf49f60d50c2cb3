package metrics

import (
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/engine"
	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/journal/record"
)

// engineObserver counts the events of the engine. Its series are looked up once and not
// per event.
type engineObserver struct {
	pools    []string
	counters *prometheus.CounterVec
	events   map[event]prometheus.Counter
	waits    map[engine.Queue]prometheus.Observer
}

// event is what one series of events_total counts.
type event struct {
	action  engine.Action
	family  record.Family
	pool    string
	outcome engine.EventOutcome
}

// Engine returns the observer for the engine.
func (m *Metrics) Engine() engine.Observer { return m.engine }

func newEngineObserver(f factory, pools []string) *engineObserver {
	o := &engineObserver{
		pools: pools, events: map[event]prometheus.Counter{}, waits: map[engine.Queue]prometheus.Observer{},
		counters: f.counters("events_total", "Completed actions on attachments, one for each address family.", "action", "family", "pool", "outcome"),
	}
	waits := f.seconds("queue_wait_seconds", "Time in seconds that operations waited in a queue, including those whose wait was canceled.", processBuckets(), "queue")
	for _, w := range []engine.Queue{engine.QueueEntry, engine.QueueProcess} {
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

// actions returns all actions with their possible outcomes: only a client's request can be
// rejected.
func actions() map[engine.Action][]engine.EventOutcome {
	request := []engine.EventOutcome{engine.OutcomeSuccess, engine.OutcomeRejected, engine.OutcomeFailed}
	background := []engine.EventOutcome{engine.OutcomeSuccess, engine.OutcomeFailed}
	return map[engine.Action][]engine.EventOutcome{
		engine.ActionAllocate: request, engine.ActionRestore: request, engine.ActionRelease: request, engine.ActionDiscard: request,
		engine.ActionExpire: background, engine.ActionRetire: background,
		engine.ActionReacquire: background, engine.ActionExclude: background, engine.ActionCleanup: background,
	}
}

func families() []record.Family { return []record.Family{record.IPv4, record.IPv6} }

// counter returns the series of an event.
func (o *engineObserver) counter(e event) prometheus.Counter {
	return o.counters.WithLabelValues(string(e.action), string(e.family), e.pool, string(e.outcome))
}

// ActionDone implements attachment.Observer. An unexpected event gets its series with its
// first occurrence.
func (o *engineObserver) ActionDone(done engine.Event) {
	for _, family := range done.Families {
		e := event{done.Action, family, poolLabel(o.pools, done.Pool), done.Outcome}
		counter, ok := o.events[e]
		if !ok {
			counter = o.counter(e)
		}
		counter.Inc()
	}
}

// QueueWait implements attachment.Observer.
func (o *engineObserver) QueueWait(q engine.Queue, d time.Duration) {
	if wait, ok := o.waits[q]; ok {
		wait.Observe(d.Seconds())
	}
}

// poolLabel returns the label of a pool. A request can name any pool, but only configured
// ones have their own label.
func poolLabel(pools []string, pool string) string {
	if slices.Contains(pools, pool) {
		return pool
	}
	return other
}
