package metrics

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/delegated-ipam/delegated-ipam/internal/plugin"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
)

// maxPlugins is how many plugin types have their own label. A node has one or two; endless
// changes of its configuration must not create endless series.
const maxPlugins = 16

// success is the outcome of a plugin call without an error.
const success = "success"

// pluginObserver counts plugin calls and processes.
type pluginObserver struct {
	calls    *prometheus.CounterVec
	duration *prometheus.HistogramVec
	running  prometheus.Gauge

	mu    sync.Mutex
	known map[string]bool // plugin types with their own label
}

// Plugin returns the observer for the plugin runner.
func (m *Metrics) Plugin() plugin.Observer { return m.plugin }

// RegisterPlugin creates the series of a plugin type before its first call, because a rate
// needs an initial zero.
func (m *Metrics) RegisterPlugin(plugin string) { m.plugin.label(plugin) }

func newPluginObserver(f factory) *pluginObserver {
	o := &pluginObserver{
		calls:    f.counters("plugin_calls_total", "Completed calls of the delegated IPAM plugin.", "plugin", "verb", "outcome"),
		duration: f.seconds("plugin_call_duration_seconds", "Duration of calls of the delegated IPAM plugin in seconds.", processBuckets(), "plugin", "verb"),
		running:  f.gauges("plugin_processes", "Number of plugin processes, including prestarted ones.").WithLabelValues(),
		known:    map[string]bool{},
	}
	o.prepare(other)
	return o
}

// Called implements delegate.Observer.
func (o *pluginObserver) Called(verb, plugin string, outcome call.Outcome, duration time.Duration) {
	plugin = o.label(plugin)
	if outcome == "" {
		outcome = success
	}
	o.calls.WithLabelValues(plugin, verb, string(outcome)).Inc()
	o.duration.WithLabelValues(plugin, verb).Observe(duration.Seconds())
}

// Running implements delegate.Observer.
func (o *pluginObserver) Running(change int) { o.running.Add(float64(change)) }

// label returns the label of a plugin type.
func (o *pluginObserver) label(plugin string) string {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.known[plugin] {
		if len(o.known) == maxPlugins {
			return other
		}
		o.prepare(plugin)
		o.known[plugin] = true
	}
	return plugin
}

// prepare creates the series of a plugin label.
func (o *pluginObserver) prepare(plugin string) {
	for _, verb := range []string{call.VerbAdd, call.VerbCheck, call.VerbDel, call.VerbStatus, call.VerbVersion} {
		for _, outcome := range []call.Outcome{success, call.NotStarted, call.Refused, call.Unknown} {
			o.calls.WithLabelValues(plugin, verb, string(outcome))
		}
		o.duration.WithLabelValues(plugin, verb)
	}
}
