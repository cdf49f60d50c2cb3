package benchbridge

import (
	"bytes"
	"io"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"k8s.io/client-go/rest"

	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

// watchers are the watches of all CiliumNodes that the agents have, besides the watch of their own
// one.
type watchers struct{ lines, bytes atomic.Int64 }

// received returns the number of events that they have received, and their bytes.
func (w *watchers) received() (events, bytes int64) { return w.lines.Load(), w.bytes.Load() }

// watchAll starts watches of all CiliumNodes, which end with the test. They count events and do not
// decode them.
func (b *bench) watchAll(t *testing.T, count int) *watchers {
	t.Helper()
	client, err := rest.HTTPClientFor(b.api)
	harness.Must(t, err)
	w := &watchers{}
	for range count {
		// Without a resourceVersion the first events are the present objects.
		body := b.open(t, client, "/apis/cilium.io/v2/ciliumnodes?watch=true&resourceVersion=0")
		go func() {
			defer body.Close()
			buffer := make([]byte, 64<<10)
			for {
				n, err := body.Read(buffer)
				w.bytes.Add(int64(n))
				w.lines.Add(int64(bytes.Count(buffer[:n], []byte("\n")))) // an event is a line
				if err != nil {
					return // the test ends
				}
			}
		}()
	}
	// The first events are the present objects, which are not of the churn.
	harness.Must(t, sleep(t.Context(), 2*time.Second))
	return w
}

// statusUpdates returns how many status updates of CiliumNodes the API server has served by PUT: those
// of the agents and the operator.
func (b *bench) statusUpdates(t *testing.T) float64 {
	t.Helper()
	client, err := rest.HTTPClientFor(b.api)
	harness.Must(t, err)
	body := b.open(t, client, "/metrics")
	defer body.Close()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(body)
	harness.Must(t, err)
	sum := 0.0
	for _, m := range families["apiserver_request_total"].GetMetric() {
		labels := map[string]string{}
		for _, l := range m.GetLabel() {
			labels[l.GetName()] = l.GetValue()
		}
		if labels["resource"] == "ciliumnodes" && labels["subresource"] == "status" && labels["verb"] == http.MethodPut {
			sum += m.GetCounter().GetValue()
		}
	}
	return sum
}

// open sends a GET, which ends with the test, and returns the body of the response.
func (b *bench) open(t *testing.T, client *http.Client, path string) io.ReadCloser {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, b.URL()+path, http.NoBody)
	harness.Must(t, err)
	answer, err := client.Do(r)
	harness.Must(t, err)
	if answer.StatusCode != http.StatusOK {
		t.Fatalf("GET %s: %s; expected 200", path, answer.Status)
	}
	return answer.Body
}
