package metrics

import (
	"context"
	"net/http"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
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

// expect makes every series that is known in advance.
func (m *apiMetrics) expect(operations map[string][]int) {
	m.took.WithLabelValues(other)
	for operation, codes := range operations {
		m.took.WithLabelValues(operation)
		for _, code := range codes {
			m.requests.WithLabelValues(operation, strconv.Itoa(code))
		}
	}
}

// Operations names the operations of an API. They are few, whatever is asked.
type Operations interface {
	// Operation is that of a request, empty for none.
	Operation(*http.Request) string
	// Operations are all of them, with their documented status codes.
	Operations() map[string][]int
}

// operationKey is the context key of a request's operation.
type operationKey struct{}

// API returns a handler whose requests are measured by their operations.
func (m *Metrics) API(next http.Handler, operations Operations) http.Handler {
	m.api.expect(operations.Operations())
	label := promhttp.WithLabelFromCtx("operation", func(ctx context.Context) string {
		name, _ := ctx.Value(operationKey{}).(string)
		return name
	})
	measured := promhttp.InstrumentHandlerDuration(m.api.took, promhttp.InstrumentHandlerCounter(m.api.requests, next, label), label)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := operations.Operation(r)
		if name == "" {
			name = other
		}
		measured.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), operationKey{}, name)))
	})
}
