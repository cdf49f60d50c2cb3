package metrics

import (
	"cmp"
	"slices"
	"strconv"
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/daemon/attachment"
	"github.com/delegated-ipam/delegated-ipam/internal/daemon/engine"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
)

// The changes of a journal.
const (
	JournalWrite  = "write"
	JournalRemove = "remove"
)

// maxPlugins is how many plugin types have their own label. A node has one or two; endless
// changes of its configuration must not create endless series.
const maxPlugins = 16

// success is the outcome of a plugin call without an error.
const success = "success"

// prepare creates the series that are known before the first event, because a rate needs an initial
// zero. Any other series begins with its first event.
func (m *Metrics) prepare() {
	for _, pool := range append(slices.Clone(m.pools), other) {
		for action, outcomes := range actions() {
			for _, outcome := range outcomes {
				for _, family := range families() {
					m.events.WithLabelValues(string(action), string(family), pool, string(outcome))
				}
			}
		}
	}
	for _, q := range []engine.Queue{engine.QueueEntry, engine.QueueProcess} {
		m.queueWait.WithLabelValues(string(q))
	}
	for _, change := range []string{JournalWrite, JournalRemove} {
		m.journalDuration.WithLabelValues(change)
		m.journalFailures.WithLabelValues(change)
	}
	m.preparePlugin(other)
	m.requestDuration.WithLabelValues(other)
}

// actions returns all actions with their possible outcomes: only a client's request can be
// rejected.
func actions() map[attachment.Action][]engine.EventOutcome {
	request := []engine.EventOutcome{engine.OutcomeSuccess, engine.OutcomeRejected, engine.OutcomeFailed}
	background := []engine.EventOutcome{engine.OutcomeSuccess, engine.OutcomeFailed}
	return map[attachment.Action][]engine.EventOutcome{
		attachment.Allocate: request, attachment.Restore: request, attachment.Release: request,
		attachment.Expire: background, attachment.Retire: background,
		attachment.Reacquire: background, attachment.Cleanup: background, attachment.Acquire: background,
	}
}

func families() []attachment.Family { return []attachment.Family{attachment.IPv4, attachment.IPv6} }

// Happened implements engine.Observer. The engine has the counters of what is not the end of an action.
func (m *Metrics) Happened(ev engine.Event) {
	if ev.Kind != engine.Done {
		return
	}
	for _, family := range ev.Families {
		m.events.WithLabelValues(string(ev.Action), string(family), m.poolLabel(ev.Pool), string(ev.Outcome)).Inc()
	}
}

// QueueWait implements engine.Observer.
func (m *Metrics) QueueWait(q engine.Queue, d time.Duration) {
	m.queueWait.WithLabelValues(string(q)).Observe(d.Seconds())
}

// Called implements plugin.Observer.
func (m *Metrics) Called(verb, plugin string, outcome call.Outcome, duration time.Duration) {
	plugin = m.RegisterPlugin(plugin)
	m.pluginCalls.WithLabelValues(plugin, verb, cmp.Or(string(outcome), success)).Inc()
	m.pluginDuration.WithLabelValues(plugin, verb).Observe(duration.Seconds())
}

// Running implements plugin.Observer.
func (m *Metrics) Running(change int) { m.pluginProcesses.Add(float64(change)) }

// RegisterPlugin creates the series of a plugin type, and returns its label.
func (m *Metrics) RegisterPlugin(plugin string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.plugins[plugin] {
		if len(m.plugins) == maxPlugins {
			return other
		}
		m.preparePlugin(plugin)
		m.plugins[plugin] = true
	}
	return plugin
}

// preparePlugin creates the series of a plugin label.
func (m *Metrics) preparePlugin(plugin string) {
	for _, verb := range []string{call.VerbAdd, call.VerbCheck, call.VerbDel, call.VerbGC, call.VerbStatus, call.VerbVersion} {
		for _, outcome := range []call.Outcome{success, call.NotStarted, call.Refused, call.Unknown} {
			m.pluginCalls.WithLabelValues(plugin, verb, string(outcome))
		}
		m.pluginDuration.WithLabelValues(plugin, verb)
	}
}

// JournalChanged measures a change of the journal that began at a time and ended now. A change that
// did not begin, because the journal is not available, has no duration.
func (m *Metrics) JournalChanged(change string, began time.Time, err error) {
	if !began.IsZero() {
		m.journalDuration.WithLabelValues(change).Observe(time.Since(began).Seconds())
	}
	if err != nil {
		m.journalFailures.WithLabelValues(change).Inc()
	}
}

// RegisterAPI creates the series of all operations with their documented status codes.
func (m *Metrics) RegisterAPI(operations map[string][]int) {
	for operation, codes := range operations {
		m.requestDuration.WithLabelValues(operation)
		for _, code := range codes {
			m.requests.WithLabelValues(operation, strconv.Itoa(code))
		}
	}
}

// Requested measures a request of an operation; empty for none.
func (m *Metrics) Requested(operation string, code int, duration time.Duration) {
	operation = cmp.Or(operation, other)
	m.requestDuration.WithLabelValues(operation).Observe(duration.Seconds())
	m.requests.WithLabelValues(operation, strconv.Itoa(code)).Inc()
}
