// Package metrics holds the Prometheus metrics of the daemon in their own registry
// (docs/reference/metrics.md). No label holds an owner, a container ID or an address, and the number
// of series is bounded: values that are not known in advance share one label.
package metrics

import (
	"net/http"
	"runtime"
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/delegated-ipam/delegated-ipam/internal/metricsserver"
)

// prefix begins the name of each metric.
const prefix = "delegated_ipam_"

// other is the label of all values without their own. It is not a valid name of a pool, a
// plugin or an operation.
const other = "_other"

// Options are known before the first event.
type Options struct {
	// Version is the program's version.
	Version string
	// Pools are the configured pools.
	Pools []string
}

// Metrics are the metrics of one daemon. It observes the engine, the plugin runner, the journal and
// the API.
type Metrics struct {
	registry *prometheus.Registry
	pools    []string

	events          *prometheus.CounterVec
	queueWait       *prometheus.HistogramVec
	pluginCalls     *prometheus.CounterVec
	pluginDuration  *prometheus.HistogramVec
	pluginProcesses prometheus.Gauge
	journalDuration *prometheus.HistogramVec
	journalFailures *prometheus.CounterVec
	requests        *prometheus.CounterVec
	requestDuration *prometheus.HistogramVec

	mu      sync.Mutex
	plugins map[string]bool // plugin types with their own label
}

// New returns metrics that are all zero.
func New(o Options) *Metrics {
	r := prometheus.NewRegistry()
	f := factory{r}
	r.MustRegister(
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)
	f.gauges("build_info", "Version of the program and of Go, as labels; always 1.", "version", "goversion").
		WithLabelValues(o.Version, runtime.Version()).Set(1)
	m := &Metrics{
		registry: r, pools: o.Pools, plugins: map[string]bool{},

		events:          f.counters("events_total", "Completed actions on attachments, one for each address family.", "action", "family", "pool", "outcome"),
		queueWait:       f.seconds("queue_wait_seconds", "Time that operations waited in a queue, including those whose wait was canceled.", processBuckets(), "queue"),
		pluginCalls:     f.counters("plugin_calls_total", "Completed calls of the delegated IPAM plugin.", "plugin", "verb", "outcome"),
		pluginDuration:  f.seconds("plugin_call_duration_seconds", "Duration of calls of the delegated IPAM plugin.", processBuckets(), "plugin", "verb"),
		pluginProcesses: f.gauges("plugin_processes", "Plugin processes.").WithLabelValues(),
		journalDuration: f.seconds("journal_write_duration_seconds", "Duration of durable journal changes, including failed ones.", diskBuckets(), "operation"),
		journalFailures: f.counters("journal_failures_total", "Failed journal changes.", "operation"),
		requests:        f.counters("api_requests_total", "Completed API requests.", "operation", "code"),
		requestDuration: f.seconds("api_request_duration_seconds", "Duration of API requests.", processBuckets(), "operation"),
	}
	m.prepare()
	return m
}

// Handler returns the handler of a scrape.
func (m *Metrics) Handler() http.Handler { return metricsserver.Handler(m.registry) }

// poolLabel returns the label of a pool. A request can name any pool, but only configured
// ones have their own label.
func (m *Metrics) poolLabel(pool string) string {
	if slices.Contains(m.pools, pool) {
		return pool
	}
	return other
}

// factory creates and registers metrics.
type factory struct{ prometheus.Registerer }

func (f factory) counters(name, help string, labels ...string) *prometheus.CounterVec {
	c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: prefix + name, Help: help}, labels)
	f.MustRegister(c)
	return c
}

func (f factory) gauges(name, help string, labels ...string) *prometheus.GaugeVec {
	g := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: prefix + name, Help: help}, labels)
	f.MustRegister(g)
	return g
}

// seconds returns a histogram of durations; buckets are in seconds.
func (f factory) seconds(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	h := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: prefix + name, Help: help, Buckets: buckets}, labels)
	f.MustRegister(h)
	return h
}

// processBuckets are for durations that include a plugin process: from a millisecond to
// more than the 80 s of a request.
func processBuckets() []float64 {
	return []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 90}
}

// diskBuckets are for durations of disk writes.
func diskBuckets() []float64 {
	return []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 5}
}
