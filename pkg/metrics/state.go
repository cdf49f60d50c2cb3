package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/delegated-ipam/delegated-ipam/pkg/attachment"
	"github.com/delegated-ipam/delegated-ipam/pkg/journal/record"
)

// Engine is asked at each scrape for what there is.
type Engine interface {
	Summaries() map[string]attachment.Summary
	Queued() map[attachment.Wait]int
	Counters() attachment.Counters
}

// Watch adds what is asked for at each scrape: the engine, the number of records
// that were put aside, and whether the sidecar is ready.
func (m *Metrics) Watch(e Engine, quarantined func() int, ready *Readiness) {
	f := factory{m.registry}
	m.registry.MustRegister(newState(e, m.engine.pools))
	f.asked("ready", "1 if addresses can be handed out, else 0.", ready.value)
	f.asked("quarantined_records", "Records that could not be used and were put aside.", func() float64 { return float64(quarantined()) })
	count := func(name, help string, of func(attachment.Counters) uint64) {
		f.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: prefix + name, Help: help},
			func() float64 { return float64(of(e.Counters())) }))
	}
	count("lost_total", "Attachments of which the plugin said that it does not hold them.", func(c attachment.Counters) uint64 { return c.Lost })
	count("healed_total", "Lost attachments that got the same addresses back.", func(c attachment.Counters) uint64 { return c.Healed })
	count("duplicates_total", "Addresses that the plugin handed out twice.", func(c attachment.Counters) uint64 { return c.Duplicates })
	count("expired_total", "Hand-outs that were not confirmed in time.", func(c attachment.Counters) uint64 { return c.Expired })
}

// asked is a gauge that is asked for at each scrape.
func (f factory) asked(name, help string, value func() float64) {
	f.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: prefix + name, Help: help}, value))
}

// state is what the engine has, counted at each scrape.
type state struct {
	engine Engine
	pools  []string

	attachments, addresses, lost, pending, age, queue *prometheus.Desc
}

func newState(e Engine, pools []string) *state {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(prefix+name, help, labels, nil)
	}
	return &state{
		engine: e, pools: pools,
		attachments: desc("attachments", "Attachments by state.", "pool", "state"),
		addresses:   desc("addresses", "Addresses that are handed out.", "pool", "family"),
		lost:        desc("lost_attachments", "Attachments that the plugin does not hold any more, as far as is known.", "pool"),
		pending:     desc("pending_releases", "Attachments that the plugin has yet to take back.", "pool"),
		age:         desc("pending_release_age_seconds", "Since when the oldest of them waits; 0 if there is none.", "pool"),
		queue:       desc("queue_length", "How much work waits.", "queue"),
	}
}

// Describe implements prometheus.Collector.
func (s *state) Describe(c chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{s.attachments, s.addresses, s.lost, s.pending, s.age, s.queue} {
		c <- d
	}
}

// Collect implements prometheus.Collector.
func (s *state) Collect(c chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, value float64, labels ...string) {
		c <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
	}
	for pool, in := range s.summaries() {
		for _, st := range []record.State{record.Adding, record.Held, record.Cooling, record.Releasing} {
			gauge(s.attachments, float64(in.States[st]), pool, string(st))
		}
		for _, f := range families() {
			gauge(s.addresses, float64(in.Addresses[f]), pool, string(f))
		}
		gauge(s.lost, float64(in.Lost), pool)
		gauge(s.pending, float64(in.States[record.Releasing]), pool)
		gauge(s.age, age(in.PendingRelease), pool)
	}
	for queue, length := range s.engine.Queued() {
		gauge(s.queue, float64(length), string(queue))
	}
}

// summaries puts what earlier configurations left under one label.
func (s *state) summaries() map[string]attachment.Summary {
	all := map[string]attachment.Summary{other: {}}
	for pool, in := range s.engine.Summaries() {
		label := poolLabel(s.pools, pool)
		all[label] = all[label].Plus(in)
	}
	return all
}

// age is how long ago a moment is, in seconds; 0 for none and where the clock was set back.
func age(since time.Time) float64 {
	if since.IsZero() {
		return 0
	}
	return max(0, time.Since(since).Seconds())
}
