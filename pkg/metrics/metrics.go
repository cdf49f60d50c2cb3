// Package metrics keeps what Prometheus is told of the sidecar, in a registry of
// its own (docs/metrics.md). Labels never hold an owner, a container ID or an
// address, and what is not known in advance cannot make series without bound.
package metrics

import (
	"net/http"
	"runtime"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/delegated-ipam/delegated-ipam/pkg/metrics/endpoint"
)

// prefix begins every name of ours.
const prefix = "delegated_ipam_"

// other is the value of a label for what has no value of its own. No pool, no
// plugin and no operation can be called that.
const other = "_other"

// Options are what is known before anything is counted.
type Options struct {
	// Version is the program's version.
	Version string
	// Pools are the configured pools.
	Pools []string
}

// Metrics are the collectors of one sidecar.
type Metrics struct {
	registry *prometheus.Registry
	engine   *engineObserver
	plugin   *pluginObserver
	journal  *journalMetrics
	api      *apiMetrics
}

// New returns metrics that all are zero.
func New(o Options) *Metrics {
	r := prometheus.NewRegistry()
	f := factory{r}
	r.MustRegister(
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)
	f.gauges("build_info", "Always 1; the labels tell which program runs.", "version", "goversion").
		WithLabelValues(o.Version, runtime.Version()).Set(1)
	return &Metrics{
		registry: r,
		engine:   newEngineObserver(f, o.Pools),
		plugin:   newPluginObserver(f),
		journal:  newJournalMetrics(f),
		api:      newAPIMetrics(f),
	}
}

// Handler answers a scrape.
func (m *Metrics) Handler() http.Handler { return endpoint.Handler(m.registry) }

// factory makes registered collectors.
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

// seconds is a histogram of durations; buckets are in seconds.
func (f factory) seconds(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	h := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: prefix + name, Help: help, Buckets: buckets}, labels)
	f.MustRegister(h)
	return h
}

// long are buckets for what takes a process or waits for one: from a millisecond
// to beyond the 80 s of a request.
func long() []float64 {
	return []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 90}
}

// short are buckets for what takes a disk.
func short() []float64 {
	return []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 5}
}
