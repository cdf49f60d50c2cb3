package metrics

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/delegated-ipam/delegated-ipam/pkg/delegate"
	"github.com/delegated-ipam/delegated-ipam/pkg/delegate/call"
)

// mostPlugins is how many plugin types have a value of the label. A node has one
// or two; a configuration that changes for ever must not make series for ever.
const mostPlugins = 16

// success is the outcome of a plugin call that has no error.
const success = "success"

// pluginObserver counts what the plugin runner tells.
type pluginObserver struct {
	calls   *prometheus.CounterVec
	took    *prometheus.HistogramVec
	running prometheus.Gauge

	mu    sync.Mutex
	known map[string]bool // plugin types that have a value of their own
}

// Plugin returns the observer for the plugin runner.
func (m *Metrics) Plugin() delegate.Observer { return m.plugin }

// RegisterPlugin makes the series of a plugin type before it is called for the first
// time: a rate needs a zero.
func (m *Metrics) RegisterPlugin(plugin string) { m.plugin.label(plugin) }

func newPluginObserver(f factory) *pluginObserver {
	o := &pluginObserver{
		calls:   f.counters("plugin_calls_total", "Calls of the delegated IPAM plugin.", "plugin", "verb", "outcome"),
		took:    f.seconds("plugin_call_duration_seconds", "How long calls of the plugin took.", long(), "plugin", "verb"),
		running: f.gauges("plugin_processes", "Plugin processes that run now.").WithLabelValues(),
		known:   map[string]bool{},
	}
	o.prepare(other)
	return o
}

// Called implements delegate.Observer.
func (o *pluginObserver) Called(verb, plugin string, outcome call.Outcome, took time.Duration) {
	plugin = o.label(plugin)
	if outcome == "" {
		outcome = success
	}
	o.calls.WithLabelValues(plugin, verb, string(outcome)).Inc()
	o.took.WithLabelValues(plugin, verb).Observe(took.Seconds())
}

// Running implements delegate.Observer.
func (o *pluginObserver) Running(change int) { o.running.Add(float64(change)) }

// label is a plugin type's value of the label.
func (o *pluginObserver) label(plugin string) string {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.known[plugin] {
		if len(o.known) == mostPlugins {
			return other
		}
		o.prepare(plugin)
		o.known[plugin] = true
	}
	return plugin
}

// prepare makes every series of a plugin.
func (o *pluginObserver) prepare(plugin string) {
	for _, verb := range []string{call.VerbAdd, call.VerbCheck, call.VerbDel, call.VerbStatus, call.VerbVersion} {
		for _, outcome := range []call.Outcome{success, call.NotStarted, call.Refused, call.Unknown} {
			o.calls.WithLabelValues(plugin, verb, string(outcome))
		}
		o.took.WithLabelValues(plugin, verb)
	}
}
