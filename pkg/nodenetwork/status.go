package nodenetwork

import (
	"fmt"
	"net/http"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/delegated-ipam/delegated-ipam/pkg/metrics/endpoint"
)

const prefix = "delegated_ipam_network_"

// Values of the label change.
const (
	changeWritten = "written"
	changeRemoved = "removed"
)

// status is the state that metrics and probes show. Its methods may be called concurrently.
type status struct {
	registry  *prometheus.Registry
	rendered  prometheus.Gauge
	success   prometheus.Gauge
	condition *prometheus.GaugeVec
	changes   *prometheus.CounterVec
	apiErrors *prometheus.CounterVec

	mu sync.Mutex
	// notReady is the reason why the file is not up to date; empty if it is.
	notReady string
}

func newStatus() *status {
	s := &status{registry: prometheus.NewRegistry(), notReady: "the Node has not been read yet"}
	s.rendered = prometheus.NewGauge(prometheus.GaugeOpts{Name: prefix + "rendered", Help: "1 if the file is up to date with the Node and the template, otherwise 0."})
	s.success = prometheus.NewGauge(prometheus.GaugeOpts{Name: prefix + "last_success_timestamp_seconds", Help: "Time at which the file was last found up to date, in seconds since 1970; 0 for never."})
	s.condition = prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: prefix + "condition", Help: "1 for the reason why the file is not up to date, otherwise 0."}, []string{"reason"})
	s.changes = prometheus.NewCounterVec(prometheus.CounterOpts{Name: prefix + "file_changes_total", Help: "Changes of the file."}, []string{"change"})
	s.apiErrors = prometheus.NewCounterVec(prometheus.CounterOpts{Name: prefix + "api_errors_total", Help: "Failed requests to the API server."}, []string{"operation"})
	s.registry.MustRegister(s.rendered, s.success, s.condition, s.changes, s.apiErrors)
	// Every value of a label exists from the start: a rate needs a zero.
	for _, r := range reasons() {
		s.condition.WithLabelValues(r)
	}
	for _, c := range []string{changeWritten, changeRemoved} {
		s.changes.WithLabelValues(c)
	}
	for _, o := range []string{"get", "list", "watch"} {
		s.apiErrors.WithLabelValues(o)
	}
	return s
}

// set sets the problem, nil for none.
func (s *status) set(p *problem) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range reasons() {
		s.condition.WithLabelValues(r).Set(0)
	}
	if p != nil {
		s.notReady = p.String()
		s.rendered.Set(0)
		s.condition.WithLabelValues(p.reason).Set(1)
		return
	}
	s.notReady = ""
	s.rendered.Set(1)
	s.success.SetToCurrentTime()
}

func (s *status) changed(how string) { s.changes.WithLabelValues(how).Inc() }

func (s *status) apiFailed(operation string) { s.apiErrors.WithLabelValues(operation).Inc() }

// why returns the reason why the file is not up to date; empty if it is.
func (s *status) why() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.notReady
}

// handler serves /metrics, /readyz and /healthz.
func (s *status) handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET "+endpoint.Path, endpoint.Handler(s.registry))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if why := s.why(); why != "" {
			http.Error(w, why, http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	})
	return mux
}
