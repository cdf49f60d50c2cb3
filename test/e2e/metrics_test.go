package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/delegated-ipam/delegated-ipam/internal/daemon/metrics"
	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
	"github.com/delegated-ipam/delegated-ipam/test/catalog"
	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

// anyMetricsPort makes the kernel choose a free port.
const anyMetricsPort = "--metrics-address=127.0.0.1:0"

var metricsAddressLine = regexp.MustCompile(`msg="Serving metrics" address="([^"]+)"`)

// metricsAddress returns the address of a daemon with anyMetricsPort, from its log.
func metricsAddress(t *testing.T, s *harness.Daemon) string {
	t.Helper()
	var match []string
	harness.Eventually(t, "the address of the metrics in the log", func() error {
		if match = metricsAddressLine.FindStringSubmatch(s.Log()); match == nil {
			return errors.New("no such line")
		}
		return nil
	})
	return match[1]
}

// scrape returns the metrics from a daemon's socket.
func scrape(t *testing.T, s *harness.Daemon) map[string]*dto.MetricFamily {
	t.Helper()
	a := s.Do(t, http.MethodGet, "/metrics")
	a.WantStatus(t, http.StatusOK)
	return parseMetrics(t, a.Body)
}

func parseMetrics(t *testing.T, text []byte) map[string]*dto.MetricFamily {
	t.Helper()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(text))
	check.Must(t, err)
	return families
}

// sum returns the sum of the series of a metric that have the labels (name, value, name,
// value); for a histogram the sum of the observation counts.
func sum(families map[string]*dto.MetricFamily, name string, labels ...string) float64 {
	var total float64
	for _, m := range families[name].GetMetric() {
		has := map[string]string{}
		for _, l := range m.GetLabel() {
			has[l.GetName()] = l.GetValue()
		}
		matches := true
		for i := 0; i+1 < len(labels); i += 2 {
			matches = matches && has[labels[i]] == labels[i+1]
		}
		if matches {
			total += m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	return total
}

// wantMetrics waits until a scrape has the values, by "METRIC,LABEL=VALUE,...".
func wantMetrics(t *testing.T, s *harness.Daemon, want map[string]float64) {
	t.Helper()
	harness.Eventually(t, "the metrics", func() error {
		seen := scrape(t, s)
		for series, value := range want {
			labels := strings.FieldsFunc(series, func(r rune) bool { return r == ',' || r == '=' })
			name := "delegated_ipam_" + labels[0]
			if seen[name] == nil {
				return fmt.Errorf("missing metric %s", name)
			}
			if got := sum(seen, name, labels[1:]...); got != value {
				return fmt.Errorf("%q is %v; want %v, among %v", series, got, value, seen[name])
			}
		}
		return nil
	})
}

func TestMetricsOfRequests(t *testing.T) {
	t.Parallel()
	n := nodeWith(t, harness.DualStack())
	s := n.Start(t, anyMetricsPort)
	s.AllocateFor(t, "router")
	given := s.Allocate(t, harness.Request{Owner: "health"})
	s.Do(t, http.MethodDelete, "/v1/ipam/"+given.Address.IPv4).WantStatus(t, http.StatusOK)
	s.Do(t, http.MethodDelete, "/v1/ipam/10.15.0.99").WantStatus(t, http.StatusNotFound)
	s.Do(t, http.MethodPost, "/v1/ipam?owner=x&pool=none").WantStatus(t, http.StatusBadGateway)
	wantMetrics(t, s, map[string]float64{
		"ready":                  1,
		"attachments,state=held": 2,
		"addresses,family=ipv4":  1,
		"addresses,family=ipv6":  2,
		"events_total,action=allocate,family=ipv4,pool=default,outcome=success": 2,
		"events_total,action=allocate,family=ipv6,pool=default,outcome=success": 2,
		"events_total,action=allocate,family=ipv4,pool=_other,outcome=rejected": 1,
		"events_total,action=release,family=ipv4,pool=default,outcome=success":  1,
		"events_total,action=release,outcome=rejected":                          1,
		"plugin_calls_total,plugin=host-local,verb=ADD,outcome=success":         2,
		"plugin_call_duration_seconds,verb=ADD":                                 2,
		"api_requests_total,code=201":                                           2,
		"api_requests_total,code=404":                                           1,
		"api_request_duration_seconds,operation=DELETE /v1/ipam/{ip}":           2,
		"journal_write_duration_seconds,operation=write":                        5,
		"journal_failures_total":                                                0,
		"queue_length":                                                          0,
		"attachments_lost_total":                                                0,
		"api_requests_total,operation=_other":                                   0,
		"pending_release_age_seconds,pool=_other":                               0,
		"plugin_processes":                                                      0,
	})
	address := metricsAddress(t, s)
	for _, path := range []string{"/", "/v1/ipam", "/v1/healthz", "/v1/config", "/debug/pprof/"} {
		getTCP(t, address, path).WantError(t, http.StatusNotFound)
	}
	seen := parseMetrics(t, getTCP(t, address, "/metrics").Body)
	if got := sum(seen, "delegated_ipam_attachments"); got != 2 {
		t.Errorf("by TCP %v attachments are counted; want 2", got)
	}
}

func TestMetricsDefined(t *testing.T) {
	t.Parallel()
	s := nodeWith(t, harness.DualStack()).Start(t, "--warm-leases=1")
	seen := scrape(t, s)
	got, err := catalog.Of(prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) {
		return slices.Collect(maps.Values(seen)), nil
	}))
	want, wantErr := catalog.Of(metrics.Definitions())
	if err != nil || wantErr != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("a running daemon has %+v, %v; docs/reference/metrics.md is generated from %+v, %v", got, err, want, wantErr)
	}
	s.Stop(t) // a request is logged after its response
	if strings.Contains(s.Log(), "/metrics") {
		t.Errorf("the scrape was logged:\n%s", s.Log())
	}
}

// getTCP sends a GET to a TCP address.
func getTCP(t *testing.T, address, path string) harness.Response {
	t.Helper()
	resp, err := http.Get("http://" + address + path)
	check.Must(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	check.Must(t, err)
	return harness.Response{Status: resp.StatusCode, Body: body}
}
