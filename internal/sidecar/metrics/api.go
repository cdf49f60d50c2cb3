package metrics

import (
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/response"
)

type apiMetrics struct {
	requests *prometheus.CounterVec
	duration *prometheus.HistogramVec
}

func newAPIMetrics(f factory) *apiMetrics {
	return &apiMetrics{
		requests: f.counters("api_requests_total", "Completed API requests, by operation and status code.", "operation", "code"),
		duration: f.seconds("api_request_duration_seconds", "Duration of API requests in seconds, by operation.", processBuckets(), "operation"),
	}
}

// Operations are the operations of an API. Their number does not depend on the requests.
type Operations interface {
	// Operation returns the operation of a request, empty for none, and the request to
	// serve, whose context caches the lookup.
	Operation(*http.Request) (string, *http.Request)
	// Operations returns all operations with their documented status codes.
	Operations() map[string][]int
}

// operationSeries are the series of one operation, looked up once and not per request.
type operationSeries struct {
	duration prometheus.Observer
	codes    map[int]prometheus.Counter
}

// prepare creates the series of all operations.
func (m *apiMetrics) prepare(operations map[string][]int) map[string]operationSeries {
	all := map[string]operationSeries{other: {duration: m.duration.WithLabelValues(other)}}
	for operation, codes := range operations {
		s := operationSeries{duration: m.duration.WithLabelValues(operation), codes: map[int]prometheus.Counter{}}
		for _, code := range codes {
			s.codes[code] = m.requests.WithLabelValues(operation, strconv.Itoa(code))
		}
		all[operation] = s
	}
	return all
}

// observe counts a request. An undocumented code gets its series with its first request.
func (m *apiMetrics) observe(operation string, s operationSeries, code int, duration time.Duration) {
	s.duration.Observe(duration.Seconds())
	counter, ok := s.codes[code]
	if !ok {
		counter = m.requests.WithLabelValues(operation, strconv.Itoa(code))
	}
	counter.Inc()
}

// API returns a handler that measures the requests of next by their operations. A request is
// counted before its status code is sent: a client that has its response finds it counted.
func (m *Metrics) API(next http.Handler, operations Operations) http.Handler {
	series := m.api.prepare(operations.Operations())
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		began := time.Now()
		name, r := operations.Operation(r)
		s, ok := series[name]
		if !ok {
			name, s = other, series[other]
		}
		observed := response.NewObserver(w, func(code int) { m.api.observe(name, s, code, time.Since(began)) })
		next.ServeHTTP(observed, r)
		observed.WriteHeader(http.StatusOK)
	})
}
