package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/engine"
	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/journal/record"
)

// The operations of a journal.
const (
	journalWrite  = "write"
	journalRemove = "remove"
)

type journalMetrics struct {
	duration *prometheus.HistogramVec
	failures *prometheus.CounterVec
}

func newJournalMetrics(f factory) *journalMetrics {
	m := &journalMetrics{
		duration: f.seconds("journal_write_duration_seconds", "Duration of durable journal changes in seconds, including failed ones.", diskBuckets(), "operation"),
		failures: f.counters("journal_failures_total", "Failed journal changes.", "operation"),
	}
	for _, operation := range []string{journalWrite, journalRemove} {
		m.duration.WithLabelValues(operation)
		m.failures.WithLabelValues(operation)
	}
	return m
}

func (m *journalMetrics) observe(operation string, began time.Time, err error) {
	m.duration.WithLabelValues(operation).Observe(time.Since(began).Seconds())
	if err != nil {
		m.failures.WithLabelValues(operation).Inc()
	}
}

// Journal returns a journal that measures the changes of j.
func (m *Metrics) Journal(j engine.Journal) engine.Journal {
	return measuredJournal{j, m.journal}
}

type measuredJournal struct {
	engine.Journal
	metrics *journalMetrics
}

// Write implements attachment.Journal.
func (j measuredJournal) Write(r record.Record) error {
	began := time.Now()
	err := j.Journal.Write(r)
	j.metrics.observe(journalWrite, began, err)
	return err
}

// Available implements attachment.Journal. A change that it prevents counts as a failed
// one.
func (j measuredJournal) Available() error {
	err := j.Journal.Available()
	if err != nil {
		j.metrics.failures.WithLabelValues(journalWrite).Inc()
	}
	return err
}

// Remove implements attachment.Journal.
func (j measuredJournal) Remove(containerID string) error {
	began := time.Now()
	err := j.Journal.Remove(containerID)
	j.metrics.observe(journalRemove, began, err)
	return err
}
