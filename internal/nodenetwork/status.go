package nodenetwork

import (
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/delegated-ipam/delegated-ipam/internal/metricsserver"
)

const prefix = "delegated_ipam_network_"

// progressLimit is how long one reconciliation of a healthy process may take. The template's watch
// starts one every 10 s; a request ends after 30 s, and a delay after a failure after 10 s.
const progressLimit = 5 * time.Minute

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
	// progressed is the time of the end of the last reconciliation.
	progressed time.Time
}

func newStatus() *status {
	s := &status{registry: prometheus.NewRegistry(), notReady: "the Node has not been read yet", progressed: time.Now()}
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

// set sets the problem after a reconciliation, nil for none.
func (s *status) set(p *problem) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.progressed = time.Now()
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

// stuck returns the reason to restart the process; empty for none.
func (s *status) stuck() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if age := time.Since(s.progressed); age > progressLimit {
		return fmt.Sprintf("no progress for %s", age.Round(time.Second))
	}
	return ""
}

// handler serves /metrics, /readyz and /healthz.
func (s *status) handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET "+metricsserver.Path, metricsserver.Handler(s.registry))
	for path, failure := range map[string]func() string{"/healthz": s.stuck, "/readyz": s.why} {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, _ *http.Request) {
			if text := failure(); text != "" {
				http.Error(w, text, http.StatusServiceUnavailable)
				return
			}
			fmt.Fprintln(w, "ok")
		})
	}
	return mux
}
