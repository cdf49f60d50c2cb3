package metrics

import (
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/delegated-ipam/delegated-ipam/pkg/attachment"
	"github.com/delegated-ipam/delegated-ipam/pkg/journal/record"
)

// engineObserver counts the events of the engine. Its series are looked up once and not
// per event.
type engineObserver struct {
	pools    []string
	counters *prometheus.CounterVec
	events   map[event]prometheus.Counter
	waits    map[attachment.Queue]prometheus.Observer
}

// event is what one series of events_total counts.
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
		counters: f.counters("events_total", "Completed actions on attachments, one for each address family.", "action", "family", "pool", "outcome"),
	}
	waits := f.seconds("queue_wait_seconds", "Time in seconds that operations waited in a queue, including those whose wait was canceled.", processBuckets(), "queue")
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

// actions returns all actions with their possible outcomes: only a client's request can be
// rejected.
func actions() map[attachment.Action][]attachment.EventOutcome {
	request := []attachment.EventOutcome{attachment.OutcomeSuccess, attachment.OutcomeRejected, attachment.OutcomeFailed}
	background := []attachment.EventOutcome{attachment.OutcomeSuccess, attachment.OutcomeFailed}
	return map[attachment.Action][]attachment.EventOutcome{
		attachment.ActionAllocate: request, attachment.ActionRestore: request, attachment.ActionRelease: request, attachment.ActionDiscard: request,
		attachment.ActionExpire: background, attachment.ActionRetire: background,
		attachment.ActionReacquire: background, attachment.ActionExclude: background, attachment.ActionCleanup: background,
	}
}

func families() []record.Family { return []record.Family{record.IPv4, record.IPv6} }

// counter returns the series of an event.
func (o *engineObserver) counter(e event) prometheus.Counter {
	return o.counters.WithLabelValues(string(e.action), string(e.family), e.pool, string(e.outcome))
}

// ActionDone implements attachment.Observer. An unexpected event gets its series with its
// first occurrence.
func (o *engineObserver) ActionDone(done attachment.Event) {
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
func (o *engineObserver) QueueWait(q attachment.Queue, d time.Duration) {
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
