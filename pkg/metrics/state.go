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
	QueueLengths() map[attachment.Queue]int
	Counters() attachment.Counters
}

// Report is how the sidecar is, as health and status say it.
type Report struct {
	// Ready tells whether addresses can be handed out.
	Ready bool
	// Quarantined is how many records were put aside.
	Quarantined int
}

// Watch adds what is asked for at each scrape: the engine and the report, which
// must come soon, whatever hangs.
func (m *Metrics) Watch(e Engine, report func() Report) {
	f := factory{m.registry}
	f.MustRegister(newState(e, report, m.engine.pools))
	count := func(name, help string, of func(attachment.Counters) uint64) {
		f.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: prefix + name, Help: help},
			func() float64 { return float64(of(e.Counters())) }))
	}
	count("lost_total", "Attachments of which the plugin said that it does not hold them.", func(c attachment.Counters) uint64 { return c.Lost })
	count("reacquired_total", "Lost attachments that got the same addresses back.", func(c attachment.Counters) uint64 { return c.Reacquired })
	count("duplicates_total", "Addresses that the plugin handed out twice.", func(c attachment.Counters) uint64 { return c.Duplicates })
	count("expired_total", "Hand-outs that were not confirmed in time.", func(c attachment.Counters) uint64 { return c.Expired })
}

// state is what the engine has and the report says, asked at each scrape.
type state struct {
	engine Engine
	report func() Report
	pools  []string

	ready, quarantined                                *prometheus.Desc
	attachments, addresses, lost, pending, age, queue *prometheus.Desc
}

func newState(e Engine, report func() Report, pools []string) *state {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(prefix+name, help, labels, nil)
	}
	return &state{
		engine: e, report: report, pools: pools,
		ready:       desc("ready", "1 if addresses can be handed out, else 0."),
		quarantined: desc("quarantined_records", "Records that cannot be used and are put aside."),
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
	for _, d := range []*prometheus.Desc{s.ready, s.quarantined, s.attachments, s.addresses, s.lost, s.pending, s.age, s.queue} {
		c <- d
	}
}

// Collect implements prometheus.Collector.
func (s *state) Collect(c chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, value float64, labels ...string) {
		c <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
	}
	report := s.report()
	gauge(s.quarantined, float64(report.Quarantined))
	ready := 0.0
	if report.Ready {
		ready = 1
	}
	gauge(s.ready, ready)
	for pool, in := range s.summaries() {
		for _, st := range []record.State{record.Adding, record.Held, record.Cooldown, record.Releasing} {
			gauge(s.attachments, float64(in.States[st]), pool, string(st))
		}
		for _, f := range families() {
			gauge(s.addresses, float64(in.Addresses[f]), pool, string(f))
		}
		gauge(s.lost, float64(in.Lost), pool)
		gauge(s.pending, float64(in.States[record.Releasing]), pool)
		gauge(s.age, age(in.PendingRelease), pool)
	}
	for queue, length := range s.engine.QueueLengths() {
		gauge(s.queue, float64(length), string(queue))
	}
}

// summaries puts what earlier configurations left under one label.
func (s *state) summaries() map[string]attachment.Summary {
	all := map[string]attachment.Summary{other: {}}
	for pool, in := range s.engine.Summaries() {
		label := poolLabel(s.pools, pool)
		all[label] = all[label].Add(in)
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
