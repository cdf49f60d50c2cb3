package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/engine"
	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/journal/record"
)

// Engine is read at each scrape.
type Engine interface {
	Summaries() map[string]engine.Summary
	QueueLengths() map[engine.Queue]int
	Counters() engine.Counters
}

// Report is the part of the sidecar's report that the metrics need.
type Report struct {
	// Ready reports whether addresses can be allocated.
	Ready bool
	// Quarantined is the number of quarantined records.
	Quarantined int
}

// Register adds the metrics that are collected at each scrape, from the engine and from a
// report. report must return soon even if a plugin or a disk hangs.
func (m *Metrics) Register(e Engine, report func() Report) {
	f := factory{m.registry}
	f.MustRegister(newCollector(e, report, m.engine.pools))
	count := func(name, help string, of func(engine.Counters) uint64) {
		f.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: prefix + name, Help: help},
			func() float64 { return float64(of(e.Counters())) }))
	}
	count("attachments_lost_total", "Attachments that the plugin was found to have lost.", func(c engine.Counters) uint64 { return c.Lost })
	count("attachments_reacquired_total", "Lost attachments that got the same addresses again.", func(c engine.Counters) uint64 { return c.Reacquired })
	count("duplicate_addresses_total", "Addresses that the plugin allocated although another attachment has them.", func(c engine.Counters) uint64 { return c.Duplicates })
	count("allocations_expired_total", "Allocations that were not confirmed before their expiration.", func(c engine.Counters) uint64 { return c.Expired })
}

// collector collects the state of the engine and the report at each scrape.
type collector struct {
	engine Engine
	report func() Report
	pools  []string

	ready, quarantined                                          *prometheus.Desc
	attachments, addresses, lost, excluded, pending, age, queue *prometheus.Desc
}

func newCollector(e Engine, report func() Report, pools []string) *collector {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(prefix+name, help, labels, nil)
	}
	return &collector{
		engine: e, report: report, pools: pools,
		ready:       desc("ready", "Whether addresses can be allocated: 1 or 0."),
		quarantined: desc("quarantined_records", "Number of unusable journal records in quarantine."),
		attachments: desc("attachments", "Number of attachments by state.", "pool", "state"),
		addresses:   desc("addresses", "Number of allocated addresses.", "pool", "family"),
		lost:        desc("lost_attachments", "Number of attachments that the plugin has lost and that are not reacquired yet.", "pool"),
		excluded:    desc("excluded_attachments", "Number of attachments that keep excluded addresses from being allocated.", "pool"),
		pending:     desc("pending_releases", "Number of attachments that the plugin has not released yet.", "pool"),
		age:         desc("pending_release_age_seconds", "Age of the oldest pending release in seconds; 0 without one.", "pool"),
		queue:       desc("queue_length", "Number of operations that wait in a queue.", "queue"),
	}
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(descs chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.ready, c.quarantined, c.attachments, c.addresses, c.lost, c.excluded, c.pending, c.age, c.queue} {
		descs <- d
	}
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(metrics chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, value float64, labels ...string) {
		metrics <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
	}
	report := c.report()
	gauge(c.quarantined, float64(report.Quarantined))
	ready := 0.0
	if report.Ready {
		ready = 1
	}
	gauge(c.ready, ready)
	for pool, summary := range c.summaries() {
		for _, state := range []record.State{record.Adding, record.Held, record.Cooldown, record.Releasing} {
			gauge(c.attachments, float64(summary.States[state]), pool, string(state))
		}
		for _, family := range families() {
			gauge(c.addresses, float64(summary.Addresses[family]), pool, string(family))
		}
		gauge(c.lost, float64(summary.Lost), pool)
		gauge(c.excluded, float64(summary.Excluded), pool)
		gauge(c.pending, float64(summary.States[record.Releasing]), pool)
		gauge(c.age, age(summary.PendingRelease), pool)
	}
	for queue, length := range c.engine.QueueLengths() {
		gauge(c.queue, float64(length), string(queue))
	}
}

// summaries returns the summaries by label. Pools of earlier configurations share one.
func (c *collector) summaries() map[string]engine.Summary {
	all := map[string]engine.Summary{other: {}}
	for pool, summary := range c.engine.Summaries() {
		label := poolLabel(c.pools, pool)
		all[label] = all[label].Add(summary)
	}
	return all
}

// age returns the time since a moment in seconds; 0 for the zero time, and where the clock
// was set back.
func age(since time.Time) float64 {
	if since.IsZero() {
		return 0
	}
	return max(0, time.Since(since).Seconds())
}
