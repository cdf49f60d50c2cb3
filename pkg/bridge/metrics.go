package bridge

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/delegated-ipam/delegated-ipam/pkg/bridge/planner"
)

// metrics are what is counted, in a registry of its own, and whether the pool
// has ever been seen published.
type metrics struct {
	registry                 *prometheus.Registry
	pool, used, free, leaves prometheus.Gauge
	handshakes, acquisitions *prometheus.CounterVec
	apiErrors, failures      *prometheus.CounterVec
	conflicts                prometheus.Counter
	ready                    atomic.Bool
}

const prefix = "delegated_ipam_bridge_"

func newMetrics() *metrics {
	m := &metrics{registry: prometheus.NewRegistry()}
	gauge := func(name, help string) prometheus.Gauge {
		g := prometheus.NewGauge(prometheus.GaugeOpts{Name: prefix + name, Help: help})
		m.registry.MustRegister(g)
		return g
	}
	counter := func(name, help string) prometheus.Counter {
		c := prometheus.NewCounter(prometheus.CounterOpts{Name: prefix + name, Help: help})
		m.registry.MustRegister(c)
		return c
	}
	// Every value of the label is there from the start: a rate needs a zero.
	byLabel := func(name, label, help string, values ...string) *prometheus.CounterVec {
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: prefix + name, Help: help}, []string{label})
		m.registry.MustRegister(c)
		for _, v := range values {
			c.WithLabelValues(v)
		}
		return c
	}
	m.pool = gauge("pool_addresses", "Addresses of the bridge in spec.ipam.pool.")
	m.used = gauge("used_addresses", "Those of them that the agent uses.")
	m.free = gauge("free_addresses", "Those of them that the agent can hand out.")
	m.leaves = gauge("pending_releases", "Those of them that are on their way back.")
	m.handshakes = byLabel("handshakes_total", "outcome", "Addresses whose way back has ended.", "released", "kept")
	m.acquisitions = byLabel("acquisitions_total", "outcome", "Requests for an address to the sidecar.", "acquired", "exhausted", "failed", "restored", "not restored")
	m.apiErrors = byLabel("api_errors_total", "operation", "Requests to the API server that failed, conflicts left out.", "get", "patch", "watch")
	m.conflicts = counter("conflicts_total", "Writes that came after somebody else's.")
	m.failures = byLabel("failures_total", "reason", "Looks that led to nothing.", failures()...)
	return m
}

// observe counts what is seen.
func (m *metrics) observe(v planner.View) {
	var pool, used, leaves int
	for ip, e := range v.Pool {
		if _, ours := e.Slot(); !ours {
			continue
		}
		pool++
		if _, is := v.Used[ip]; is {
			used++
		} else if e.Fenced() || v.Release[ip] != "" {
			leaves++
		}
	}
	m.pool.Set(float64(pool))
	m.used.Set(float64(used))
	m.leaves.Set(float64(leaves))
	m.free.Set(float64(pool - used - leaves))
	if pool > 0 {
		m.ready.Store(true)
	}
}

// written counts the handshakes that a write has ended.
func (m *metrics) written(step []planner.Action) {
	for _, a := range step {
		for _, ip := range a.IPs {
			switch {
			case ip == planner.Probe:
			case a.Kind == planner.Finish:
				m.handshakes.WithLabelValues("released").Inc()
			case a.Kind == planner.Clear:
				m.handshakes.WithLabelValues("kept").Inc()
			}
		}
	}
}
