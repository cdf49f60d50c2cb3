package metrics

import (
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

type apiMetrics struct {
	requests *prometheus.CounterVec
	took     *prometheus.HistogramVec
}

func newAPIMetrics(f factory) *apiMetrics {
	return &apiMetrics{
		requests: f.counters("api_requests_total", "Requests on the socket that were answered.", "operation", "code"),
		took:     f.seconds("api_request_duration_seconds", "How long requests on the socket took.", long(), "operation"),
	}
}

// Operations names the operations of an API. They are few, whatever is asked.
type Operations interface {
	// Operation is that of a request, empty for none, with the request to be served:
	// it knows what was found out.
	Operation(*http.Request) (string, *http.Request)
	// Operations are all of them, with their documented status codes.
	Operations() map[string][]int
}

// series are those of one operation: looked up once, not for each request.
type series struct {
	took  prometheus.Observer
	codes map[int]prometheus.Counter
}

// expect makes every series that is known in advance.
func (m *apiMetrics) expect(operations map[string][]int) map[string]series {
	all := map[string]series{other: {took: m.took.WithLabelValues(other)}}
	for operation, codes := range operations {
		s := series{took: m.took.WithLabelValues(operation), codes: map[int]prometheus.Counter{}}
		for _, code := range codes {
			s.codes[code] = m.requests.WithLabelValues(operation, strconv.Itoa(code))
		}
		all[operation] = s
	}
	return all
}

// answered notes one answer. A code that is not documented gets its series with it.
func (m *apiMetrics) answered(operation string, s series, code int, took time.Duration) {
	s.took.Observe(took.Seconds())
	counter, known := s.codes[code]
	if !known {
		counter = m.requests.WithLabelValues(operation, strconv.Itoa(code))
	}
	counter.Inc()
}

// API returns a handler whose requests are measured by their operations.
func (m *Metrics) API(next http.Handler, operations Operations) http.Handler {
	all := m.api.expect(operations.Operations())
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		began := time.Now()
		name, r := operations.Operation(r)
		if name == "" {
			name = other
		}
		a := &answer{ResponseWriter: w, answered: func(code int) { m.api.answered(name, all[name], code, time.Since(began)) }}
		next.ServeHTTP(a, r)
		a.count(http.StatusOK) // implicit, if there was no other (net/http, ResponseWriter)
	})
}

// answer tells its status code once, before it is out: who has an answer finds it counted.
type answer struct {
	http.ResponseWriter
	answered func(code int)
	counted  bool
}

// WriteHeader counts the status code, of several the first as net/http does, and
// passes it on.
func (a *answer) WriteHeader(code int) {
	a.count(code)
	a.ResponseWriter.WriteHeader(code)
}

func (a *answer) count(code int) {
	if !a.counted {
		a.counted = true
		a.answered(code)
	}
}

// Unwrap lets http.ResponseController reach the connection.
func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }
