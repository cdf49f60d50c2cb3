package agent

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// bridgeMetrics has the metrics of the bridge by their names.
type bridgeMetrics map[string]*dto.MetricFamily

// scrapeBridge returns the metrics of the running bridge.
func (tb *testbed) scrapeBridge(t *testing.T) bridgeMetrics {
	t.Helper()
	response, err := http.Get("http://" + bridgeAddress + "/metrics")
	must(t, err)
	defer response.Body.Close()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(response.Body)
	must(t, err)
	return families
}

// histogram returns count and sum of a histogram, of the series with an operation unless it is empty.
// It fails the test if the bridge has none.
func (b bridgeMetrics) histogram(t *testing.T, name, operation string) (int, time.Duration) {
	t.Helper()
	for _, m := range b["delegated_ipam_bridge_"+name].GetMetric() {
		if operation == "" || hasOperation(m, operation) {
			return int(m.GetHistogram().GetSampleCount()), time.Duration(m.GetHistogram().GetSampleSum() * float64(time.Second))
		}
	}
	t.Fatalf("the bridge has no metric %s, operation %q", name, operation)
	return 0, 0
}

func hasOperation(m *dto.Metric, operation string) bool {
	for _, l := range m.GetLabel() {
		if l.GetName() == "operation" {
			return l.GetValue() == operation
		}
	}
	return false
}

// recordBridge records the actions of the bridge between two scrapes.
func (tb *testbed) recordBridge(t *testing.T, before, after bridgeMetrics) {
	t.Helper()
	for _, h := range []struct{ what, name, operation string }{
		{"PATCH requests of the bridge", "api_request_duration_seconds", "patch"},
		{"GET requests of the bridge", "api_request_duration_seconds", "get"},
		{"acquisitions of the bridge", "acquire_duration_seconds", ""},
		{"publications of the bridge, since it saw that slots were missing", "publish_delay_seconds", ""},
	} {
		n, sum := before.histogram(t, h.name, h.operation)
		count, total := after.histogram(t, h.name, h.operation)
		value := "0"
		if count > n {
			value = fmt.Sprintf("%d, %s on average", count-n, ((total - sum) / time.Duration(count-n)).Round(time.Millisecond))
		}
		tb.record(t, h.what, value)
	}
}
