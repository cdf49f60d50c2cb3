package bridge

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"path"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/delegated-ipam/delegated-ipam/internal/bridge/planner"
	"github.com/delegated-ipam/delegated-ipam/internal/metricsserver"
)

// metrics has the metrics, in a separate registry, and the state that /readyz and /healthz report. Its
// methods may be called concurrently.
type metrics struct {
	registry                    *prometheus.Registry
	pool, used, free, releasing prometheus.Gauge
	handshakes, acquisitions    *prometheus.CounterVec
	apiErrors, reconcileErrors  *prometheus.CounterVec
	conflicts                   prometheus.Counter
	acquire, publish            prometheus.Histogram
	apiDuration                 *prometheus.HistogramVec
	watches                     *prometheus.GaugeVec

	// published reports whether an entry of the bridge is in the pool.
	published atomic.Bool
	// observed is the time of the last successful observation, progressed of the last step, and
	// exhausted of the first of the refused acquisitions, silent of the agent's first missing response.
	observed, progressed, exhausted, silent instant
	// cause returns the present problems of the node; empty for none.
	cause func() string
}

const prefix = "delegated_ipam_bridge_"

const (
	outcomeReleased  = "released"
	outcomeCanceled  = "canceled"
	outcomeAcquired  = "acquired"
	outcomeExhausted = "exhausted"
	outcomeFailed    = "failed"
	outcomeRestored  = "restored"
	outcomeRefused   = "refused"
)

// Definitions returns every metric of the bridge with its series.
func Definitions() prometheus.Gatherer { return newMetrics().registry }

func newMetrics() *metrics {
	registry := prometheus.NewRegistry()
	with := promauto.With(registry)
	gauge := func(name, help string) prometheus.Gauge {
		return with.NewGauge(prometheus.GaugeOpts{Name: prefix + name, Help: help})
	}
	byLabel := func(name, label, help string, values ...string) *prometheus.CounterVec {
		return metricsserver.Counter(registry, prefix+name, help, label, values...)
	}
	// From a fast plugin to the time limit of a request.
	buckets := []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 90}
	histogram := func(name, help string) prometheus.HistogramOpts {
		return prometheus.HistogramOpts{Name: prefix + name, Help: help, Buckets: buckets}
	}
	m := &metrics{
		cause:      func() string { return "" },
		registry:   registry,
		pool:       gauge("pool_addresses", "Addresses of the bridge in spec.ipam.pool."),
		used:       gauge("used_addresses", "Addresses of the bridge that the agent uses."),
		free:       gauge("free_addresses", "Addresses of the bridge that the agent can allocate."),
		releasing:  gauge("pending_releases", "Unused addresses of the bridge whose release is in progress."),
		handshakes: byLabel("handshakes_total", "outcome", "Addresses whose release has ended.", outcomeReleased, outcomeCanceled),
		acquisitions: byLabel("acquisitions_total", "outcome", "Requests for an address to the daemon.",
			outcomeAcquired, outcomeExhausted, outcomeFailed, outcomeRestored, outcomeRefused),
		apiErrors: byLabel("api_errors_total", "operation", "Failed requests to the API server, without conflicts.", "get", "list", "patch", "watch"),
		conflicts: with.NewCounter(prometheus.CounterOpts{Name: prefix + "conflicts_total", Help: "Writes that the API server refused because the CiliumNode had changed."}),
		reconcileErrors: byLabel("reconcile_errors_total", "reason", "Failed reconciliations.",
			reasonWrongMode, reasonNodeMissing, reasonNotPermitted, reasonAPIUnavailable,
			reasonDaemonUnavailable, reasonNodeMismatch, reasonOwnerNotAdmitted, reasonNoProgress),
		acquire:     with.NewHistogram(histogram("acquire_duration_seconds", "Duration of acquisitions at the daemon.")),
		publish:     with.NewHistogram(histogram("publish_delay_seconds", "Time from the observation that slots are missing to each write that publishes some.")),
		apiDuration: with.NewHistogramVec(histogram("api_request_duration_seconds", "Duration of requests to the API server, of a watch until its first response."), []string{"operation"}),
		watches:     with.NewGaugeVec(prometheus.GaugeOpts{Name: prefix + "watch_connected", Help: "1 if the watch of a resource works, otherwise 0."}, []string{"resource"}),
	}
	m.observed.set(time.Now())
	m.progressed.set(time.Now())
	since := func(name, help string, i *instant) {
		with.NewGaugeFunc(prometheus.GaugeOpts{Name: prefix + name, Help: help}, func() float64 { return i.age().Seconds() })
	}
	since("observation_age_seconds", "Time since daemon and CiliumNode were last observed, or since the start.", &m.observed)
	since("exhausted_seconds", "Time for which acquisitions have been refused; 0 if the last one was not.", &m.exhausted)
	since("agent_silence_seconds", "Time for which the agent has not answered a release mark, or not reported the address of a pod as used; 0 if it has.", &m.silent)
	for _, o := range []string{"get", "list", "watch", "patch", "create"} {
		m.apiDuration.WithLabelValues(o)
	}
	for _, r := range []string{resourceNodes, resourcePods} {
		m.watches.WithLabelValues(r)
	}
	return m
}

func (m *metrics) handler() http.Handler {
	return metricsserver.Mux(m.registry, map[string]func() error{"/healthz": m.stuck, "/readyz": m.notReady})
}

func (m *metrics) observe(o planner.Observed) {
	var pool, used, releasing int
	for ip, e := range o.Pool {
		if _, ours := e.Slot(); !ours {
			continue
		}
		pool++
		if _, is := o.Used[ip]; is {
			used++
		} else if e.Suspended() || o.Handshakes[ip] != "" {
			releasing++
		}
	}
	m.pool.Set(float64(pool))
	m.used.Set(float64(used))
	m.releasing.Set(float64(releasing))
	m.free.Set(float64(pool - used - releasing))
	m.published.Store(pool > 0)
}

// countHandshakes counts the releases that a write has ended.
func (m *metrics) countHandshakes(step []planner.Action) {
	for _, a := range step {
		for _, ip := range a.IPs {
			switch {
			case ip == planner.Ping:
			case a.Kind == planner.MarkReleased:
				m.handshakes.WithLabelValues(outcomeReleased).Inc()
			case a.Kind == planner.Unmark:
				m.handshakes.WithLabelValues(outcomeCanceled).Inc()
			}
		}
	}
}

func (m *metrics) countRequest(k planner.Kind, err error) {
	var refused *failure
	outcome := outcomeFailed
	switch isRefusal := errors.As(err, &refused) && refused.refused; {
	case k == planner.Release:
		return
	case err == nil && k == planner.Acquire:
		outcome = outcomeAcquired
	case err == nil:
		outcome = outcomeRestored
	case isRefusal && k == planner.Restore:
		outcome = outcomeRefused
	case isRefusal && refused.reason == reasonPoolExhausted:
		outcome = outcomeExhausted
	}
	m.acquisitions.WithLabelValues(outcome).Inc()
}

// timedTransport measures the requests to the API server, a watch until its first response.
type timedTransport struct {
	http.RoundTripper
	metrics *metrics
}

func (t timedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	start := time.Now()
	resp, err := t.RoundTripper.RoundTrip(r)
	t.metrics.apiDuration.WithLabelValues(operation(r)).Observe(time.Since(start).Seconds())
	return resp, err
}

// operation returns the verb of a request as RBAC has it.
func operation(r *http.Request) string {
	switch {
	case r.Method == http.MethodPatch:
		return "patch"
	case r.Method == http.MethodPost:
		return "create"
	case r.URL.Query().Get("watch") != "":
		return "watch"
	case path.Base(r.URL.Path) == resourceNodes, path.Base(r.URL.Path) == resourcePods:
		return "list"
	default:
		return "get"
	}
}

const (
	// observationLimit is how old the last successful observation of a ready bridge may be: several
	// times resync.
	observationLimit = 3 * time.Minute
	// progressLimit is how long one step of a healthy bridge may take. A request to the daemon ends
	// after 90 s.
	progressLimit = 5 * time.Minute
)

// instant is a time, or none: the zero time.
type instant struct{ at atomic.Pointer[time.Time] }

func (i *instant) set(at time.Time) { i.at.Store(&at) }

// age returns the time since the instant, 0 for none.
func (i *instant) age() time.Duration {
	if at := i.at.Load(); at != nil && !at.IsZero() {
		return time.Since(*at)
	}
	return 0
}

// notReady returns the reason why the node is not served, with its cause; nil if it is.
func (m *metrics) notReady() error {
	var reason string
	switch age := m.observed.age(); {
	case !m.published.Load():
		reason = "no address is published in spec.ipam.pool"
	case age > observationLimit:
		reason = fmt.Sprintf("daemon and CiliumNode were last observed %s ago", age.Round(time.Second))
	default:
		return nil
	}
	return fmt.Errorf("%s: %s", reason, cmp.Or(m.cause(), "no request has failed yet"))
}

// stuck returns the reason to restart the process; nil for none.
func (m *metrics) stuck() error {
	if age := m.progressed.age(); age > progressLimit {
		return fmt.Errorf("no progress for %s", age.Round(time.Second))
	}
	return nil
}
