package nodenetwork

import (
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/delegated-ipam/delegated-ipam/internal/metricsserver"
)

const prefix = "delegated_ipam_network_"

// progressLimit is how long one reconciliation of a healthy process may take. The template's watch
// starts one every 10 s; a request ends after 30 s, and a delay after a failure after 10 s.
const progressLimit = 5 * time.Minute

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
	// notReady is the reason why the file is not up to date; nil if it is.
	notReady error
	// progressed is the time of the end of the last reconciliation.
	progressed time.Time
}

// Definitions returns every metric of network with its series.
func Definitions() prometheus.Gatherer { return newStatus().registry }

func newStatus() *status {
	registry := prometheus.NewRegistry()
	with := promauto.With(registry)
	s := &status{
		registry:  registry,
		rendered:  with.NewGauge(prometheus.GaugeOpts{Name: prefix + "rendered", Help: "1 if the file is up to date with the Node and the template, otherwise 0."}),
		success:   with.NewGauge(prometheus.GaugeOpts{Name: prefix + "last_success_timestamp_seconds", Help: "Time at which the file was last found up to date, in seconds since 1970; 0 for never."}),
		condition: with.NewGaugeVec(prometheus.GaugeOpts{Name: prefix + "condition", Help: "1 for the reason why the file is not up to date, otherwise 0."}, []string{"reason"}),
		changes:   metricsserver.Counter(registry, prefix+"file_changes_total", "Changes of the file.", "change", changeWritten, changeRemoved),
		apiErrors: metricsserver.Counter(registry, prefix+"api_errors_total", "Failed requests to the API server.", "operation", "get", "list", "watch"),
		notReady:  errors.New("the Node has not been read yet"), progressed: time.Now(),
	}
	for _, r := range reasons() {
		s.condition.WithLabelValues(r)
	}
	return s
}

// set sets the problem after a reconciliation, nil for none.
func (s *status) set(p *problem) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.progressed, s.notReady = time.Now(), nil
	for _, r := range reasons() {
		s.condition.WithLabelValues(r).Set(0)
	}
	if p != nil {
		s.notReady = p
		s.rendered.Set(0)
		s.condition.WithLabelValues(p.reason).Set(1)
		return
	}
	s.rendered.Set(1)
	s.success.SetToCurrentTime()
}

// ready returns the reason why the file is not up to date; nil if it is.
func (s *status) ready() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.notReady
}

// stuck returns the reason to restart the process; nil for none.
func (s *status) stuck() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if age := time.Since(s.progressed); age > progressLimit {
		return fmt.Errorf("no progress for %s", age.Round(time.Second))
	}
	return nil
}

func (s *status) handler() http.Handler {
	return metricsserver.Mux(s.registry, map[string]func() error{"/healthz": s.stuck, "/readyz": s.ready})
}

// Reasons why the file is not up to date (docs/install/ranges.md, Not ready).
const (
	reasonNoPodCIDR       = "NoPodCIDR"
	reasonNodeMissing     = "NodeMissing"
	reasonTemplateRefused = "TemplateRefused"
	reasonSharedRange     = "SharedRange"
	reasonNotPermitted    = "NotPermitted"
	reasonAPIUnavailable  = "APIServerUnavailable"
	reasonNotWritten      = "OutputNotWritten"
)

func reasons() []string {
	return []string{
		reasonNoPodCIDR, reasonNodeMissing, reasonTemplateRefused, reasonSharedRange,
		reasonNotPermitted, reasonAPIUnavailable, reasonNotWritten,
	}
}

// problem is a reason why the file is not up to date, with a message that names the expectation and
// the remedy.
type problem struct{ reason, message string }

func (p *problem) Error() string { return p.reason + ": " + p.message }

func problemf(reason, format string, args ...any) *problem {
	return &problem{reason, fmt.Sprintf(format, args...)}
}

func notPermitted(err error) bool { return apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) }

func apiProblem(err error) *problem {
	if notPermitted(err) {
		return problemf(reasonNotPermitted, "%s; expected the rights to get, list and watch nodes, as deploy/kubernetes/base/network/rbac.yaml grants them", err)
	}
	return problemf(reasonAPIUnavailable, "cannot read the Node: %s; the file stays unchanged until the API server responds", err)
}
