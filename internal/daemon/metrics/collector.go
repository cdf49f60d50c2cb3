package metrics

import (
	"net/http"
	"time"

	"github.com/go-openapi/swag/conv"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/delegated-ipam/delegated-ipam/api/models"
	"github.com/delegated-ipam/delegated-ipam/internal/daemon/attachment"
	"github.com/delegated-ipam/delegated-ipam/internal/daemon/engine"
)

// Engine is read at each scrape.
type Engine interface {
	Summaries() map[string]engine.Summary
	QueueLengths() map[engine.Queue]int
	Count(attachment.EventKind) uint64
}

// Register adds the metrics that are collected at each scrape, from the engine and from a report of the status. report
// must return soon even if a plugin or a disk hangs.
func (m *Metrics) Register(e Engine, report func() *models.DelegatedIPAMStatus) {
	m.registry.MustRegister(&collector{engine: e, report: report, poolLabel: m.poolLabel})
}

// Definitions returns every metric with the series that are known in advance.
func Definitions() prometheus.Gatherer {
	m := New(Options{})
	m.Register(idle{}, func() *models.DelegatedIPAMStatus {
		ranges := &models.PoolStatus{Pool: other, WarmLeases: &models.WarmLeases{}}
		for _, family := range families() {
			ranges.Addresses = append(ranges.Addresses, &models.PoolAddresses{Family: string(family), Total: new(float64), Free: new(float64)})
		}
		return &models.DelegatedIPAMStatus{Pools: []*models.PoolStatus{ranges}}
	})
	m.RegisterAPI(map[string][]int{other: {http.StatusNotFound}})
	return m.registry
}

// idle is an engine without attachments.
type idle struct{}

// Summaries implements Engine.
func (idle) Summaries() map[string]engine.Summary { return nil }

// QueueLengths implements Engine.
func (idle) QueueLengths() map[engine.Queue]int {
	return map[engine.Queue]int{engine.QueueEntry: 0, engine.QueueProcess: 0, engine.QueueBackground: 0}
}

// Count implements Engine.
func (idle) Count(attachment.EventKind) uint64 { return 0 }

// collector collects the state of the engine and the report at each scrape.
type collector struct {
	engine    Engine
	report    func() *models.DelegatedIPAMStatus
	poolLabel func(string) string
}

// Describe implements prometheus.Collector. It describes nothing, so that each metric is written
// once, in Collect.
func (c *collector) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (c *collector) Collect(metrics chan<- prometheus.Metric) {
	collect := func(kind prometheus.ValueType, name, help string, value float64, labels prometheus.Labels) {
		metrics <- prometheus.MustNewConstMetric(prometheus.NewDesc(prefix+name, help, nil, labels), kind, value)
	}
	gauge := func(name, help string, value float64, labels prometheus.Labels) {
		collect(prometheus.GaugeValue, name, help, value, labels)
	}
	report := c.report()
	readiness := 0.0
	if report.Ready {
		readiness = 1
	}
	gauge("ready", "Whether addresses can be allocated: 1 or 0.", readiness, nil)
	gauge("quarantined_records", "Unusable journal records in quarantine.", float64(len(report.Quarantined)), nil)
	gauge("ended_containers", "Pods' interfaces that ended without a DEL and still have addresses.", float64(conv.Value(report.EndedContainers).Pending), nil)
	spool := conv.Value(report.Spool)
	gauge("spooled_dels", "DELs of container runtimes that could not be delivered and are not carried out yet.", float64(spool.Pending), nil)
	gauge("spooled_del_age_seconds", "Age of the oldest DEL that could not be delivered and is not carried out yet; 0 without one.",
		age(time.Time(conv.Value(spool.Oldest))), nil)
	gauge("spool_quarantined_files", "Files of the spool that were moved aside, because they are damaged or of another origin.",
		float64(spool.Quarantined), nil)
	summaries := c.summaries()
	for pool, summary := range summaries {
		labels := prometheus.Labels{"pool": pool}
		for _, state := range []attachment.State{attachment.Adding, attachment.Held, attachment.Cooldown, attachment.Releasing} {
			gauge("attachments", "Attachments by state.", float64(summary.States[state]), prometheus.Labels{"pool": pool, "state": string(state)})
		}
		for _, family := range families() {
			gauge("addresses", "Allocated addresses.", float64(summary.Addresses[family]), prometheus.Labels{"pool": pool, "family": string(family)})
		}
		gauge("lost_attachments", "Attachments that the plugin has lost and that are not reacquired yet.", float64(summary.Lost), labels)
		gauge("container_attachments", "Attachments of pods' interfaces (delegated-ipam-cni).", float64(summary.Containers), labels)
		gauge("container_attachment_age_seconds", "Age of the oldest attachment of a pod's interface; 0 without one.", age(summary.OldestContainer), labels)
		gauge("pending_releases", "Attachments that the plugin has not released yet.", float64(summary.States[attachment.Releasing]), labels)
		gauge("pending_release_age_seconds", "Age of the oldest pending release; 0 without one.", age(summary.PendingRelease), labels)
	}
	for _, p := range report.Pools {
		if w := p.WarmLeases; w != nil {
			labels := prometheus.Labels{"pool": p.Pool}
			gauge("warm_leases", "Leases that were acquired ahead and that no pod has yet; missing without --warm-leases.", float64(w.Ready), labels)
			gauge("warm_leases_wanted", "Leases to acquire ahead (--warm-leases).", float64(w.Wanted), labels)
		}
		for _, use := range p.Addresses {
			labels := prometheus.Labels{"pool": p.Pool, "family": use.Family}
			if use.Total != nil {
				gauge("range_addresses", "Addresses that the plugin can allocate from the ranges of the configuration, without excluded ones; missing if they are not known.", *use.Total, labels)
				gauge("range_free_addresses", "Addresses of the ranges that are not leased; missing if the ranges are not known.", conv.Value(use.Free), labels)
			}
			gauge("range_used_addresses", "Addresses of the ranges that are leased, also to pods of the plugin itself; if the ranges are not known, those of the attachments.", use.Used, labels)
		}
	}
	for queue, length := range c.engine.QueueLengths() {
		gauge("queue_length", "Operations that wait in a queue.", float64(length), prometheus.Labels{"queue": string(queue)})
	}
	count := func(name, help string, k attachment.EventKind) {
		collect(prometheus.CounterValue, name, help, float64(c.engine.Count(k)), nil)
	}
	count("attachments_lost_total", "Attachments that the plugin was found to have lost.", attachment.EventLost)
	count("attachments_reacquired_total", "Lost attachments that got the same addresses again.", attachment.EventReacquired)
	count("duplicate_addresses_total", "Addresses that the plugin allocated although another attachment has them.", attachment.EventDuplicate)
	count("warm_handovers_total", "Pods' interfaces that got a lease that was acquired ahead.", attachment.EventHandedOver)
	count("allocations_expired_total", "Allocations that were not confirmed before their expiration.", attachment.EventExpired)
}

// summaries returns the summaries by label. Pools of earlier configurations share one.
func (c *collector) summaries() map[string]engine.Summary {
	all := map[string]engine.Summary{other: {}}
	for pool, summary := range c.engine.Summaries() {
		label := c.poolLabel(pool)
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
