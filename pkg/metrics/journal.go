package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/delegated-ipam/delegated-ipam/pkg/attachment"
	"github.com/delegated-ipam/delegated-ipam/pkg/journal/record"
)

// The operations of a journal.
const (
	journalWrite  = "write"
	journalRemove = "remove"
)

type journalMetrics struct {
	took   *prometheus.HistogramVec
	failed *prometheus.CounterVec
}

func newJournalMetrics(f factory) *journalMetrics {
	m := &journalMetrics{
		took:   f.seconds("journal_write_duration_seconds", "How long it took to make a change of a record durable.", short(), "operation"),
		failed: f.counters("journal_failures_total", "Changes of a record that could not be made durable.", "operation"),
	}
	for _, operation := range []string{journalWrite, journalRemove} {
		m.took.WithLabelValues(operation)
		m.failed.WithLabelValues(operation)
	}
	return m
}

func (m *journalMetrics) observe(operation string, began time.Time, err error) {
	m.took.WithLabelValues(operation).Observe(time.Since(began).Seconds())
	if err != nil {
		m.failed.WithLabelValues(operation).Inc()
	}
}

// Journal returns a journal whose writes are measured.
func (m *Metrics) Journal(j attachment.Journal) attachment.Journal { return measured{j, m.journal} }

type measured struct {
	attachment.Journal
	metrics *journalMetrics
}

// Write implements attachment.Journal.
func (j measured) Write(r record.Record) error {
	began := time.Now()
	err := j.Journal.Write(r)
	j.metrics.observe(journalWrite, began, err)
	return err
}

// Available implements attachment.Journal. A change that is not begun because of it was
// not made durable either.
func (j measured) Available() error {
	err := j.Journal.Available()
	if err != nil {
		j.metrics.failed.WithLabelValues(journalWrite).Inc()
	}
	return err
}

// Remove implements attachment.Journal.
func (j measured) Remove(containerID string) error {
	began := time.Now()
	err := j.Journal.Remove(containerID)
	j.metrics.observe(journalRemove, began, err)
	return err
}
