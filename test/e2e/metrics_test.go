package e2e

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/delegated-ipam/delegated-ipam/internal/catalog"
	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/metrics"
	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

// anyMetricsPort makes the kernel choose a free port.
const anyMetricsPort = "--metrics-address=127.0.0.1:0"

var metricsAddressLine = regexp.MustCompile(`msg="Serving metrics" address="([^"]+)"`)

// metricsAddress returns the address of a sidecar with anyMetricsPort, from its log.
func metricsAddress(t *testing.T, s *harness.Sidecar) string {
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

// scrape returns the metrics from a sidecar's socket.
func scrape(t *testing.T, s *harness.Sidecar) map[string]*dto.MetricFamily {
	t.Helper()
	a := s.Do(t, http.MethodGet, "/metrics")
	if a.Status != http.StatusOK {
		t.Fatalf("the scrape is answered %s", a)
	}
	return parseMetrics(t, string(a.Body))
}

// scrapeTCP returns the metrics from a TCP address.
func scrapeTCP(t *testing.T, address string) map[string]*dto.MetricFamily {
	t.Helper()
	status, body := getTCP(t, address, "/metrics")
	if status != http.StatusOK {
		t.Fatalf("the scrape is answered %d %s", status, body)
	}
	return parseMetrics(t, body)
}

func parseMetrics(t *testing.T, text string) map[string]*dto.MetricFamily {
	t.Helper()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(text))
	harness.Must(t, err)
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

func TestMetricsOfRequests(t *testing.T) {
	t.Parallel()
	n := nodeWith(t, harness.DualStack())
	s := n.Start(t, anyMetricsPort)
	address := metricsAddress(t, s)
	s.AllocateFor(t, "router")
	given := s.Allocate(t, harness.Request{Owner: "health"})
	if a := s.Do(t, http.MethodDelete, "/v1/ipam/"+given.Address.IPv4); a.Status != http.StatusOK {
		t.Fatal(a)
	}
	if a := s.Do(t, http.MethodDelete, "/v1/ipam/10.15.0.99"); a.Status != http.StatusNotFound {
		t.Fatal(a)
	}
	if a := s.Do(t, http.MethodPost, "/v1/ipam?owner=x&pool=none"); a.Status < 400 {
		t.Fatal(a)
	}
	for where, seen := range map[string]map[string]*dto.MetricFamily{"socket": scrape(t, s), "TCP": scrapeTCP(t, address)} {
		for _, want := range []struct {
			value  float64
			name   string
			labels []string
		}{
			{1, "delegated_ipam_ready", nil},
			{2, "delegated_ipam_attachments", []string{"pool", "default", "state", "held"}},
			{1, "delegated_ipam_addresses", []string{"pool", "default", "family", "ipv4"}},
			{2, "delegated_ipam_addresses", []string{"pool", "default", "family", "ipv6"}},
			{2, "delegated_ipam_events_total", []string{"action", "allocate", "family", "ipv4", "pool", "default", "outcome", "success"}},
			{2, "delegated_ipam_events_total", []string{"action", "allocate", "family", "ipv6", "pool", "default", "outcome", "success"}},
			{1, "delegated_ipam_events_total", []string{"action", "release", "family", "ipv4", "pool", "default", "outcome", "success"}},
			{1, "delegated_ipam_events_total", []string{"action", "release", "outcome", "rejected"}},
			{1, "delegated_ipam_events_total", []string{"action", "allocate", "family", "ipv4", "pool", "_other", "outcome", "rejected"}},
			{2, "delegated_ipam_plugin_calls_total", []string{"plugin", "host-local", "verb", "ADD", "outcome", "success"}},
			{2, "delegated_ipam_plugin_call_duration_seconds", []string{"plugin", "host-local", "verb", "ADD"}},
			{2, "delegated_ipam_api_requests_total", []string{"operation", "POST /v1/ipam", "code", "201"}},
			{1, "delegated_ipam_api_requests_total", []string{"operation", "DELETE /v1/ipam/{ip}", "code", "200"}},
			{1, "delegated_ipam_api_requests_total", []string{"operation", "DELETE /v1/ipam/{ip}", "code", "404"}},
			{2, "delegated_ipam_api_request_duration_seconds", []string{"operation", "DELETE /v1/ipam/{ip}"}},
			{5, "delegated_ipam_journal_write_duration_seconds", []string{"operation", "write"}},
			{0, "delegated_ipam_journal_failures_total", nil},
			{0, "delegated_ipam_queue_length", nil},
			{0, "delegated_ipam_attachments_lost_total", nil},
			{0, "delegated_ipam_api_requests_total", []string{"operation", "_other"}},
		} {
			if _, ok := seen[want.name]; !ok && want.value != 0 {
				t.Errorf("%s: there is no %s", where, want.name)
			} else if got := sum(seen, want.name, want.labels...); got != want.value {
				t.Errorf("%s: %s%q is %v; want %v", where, want.name, want.labels, got, want.value)
			}
		}
	}
	// A scrape may start a STATUS, whose process is counted.
	wantMetrics(t, s, map[[3]string]float64{{"plugin_processes"}: 0})
}

func TestMetricsPendingRelease(t *testing.T) {
	t.Parallel()
	n, plugin := scriptedNode(t, "scripted", nil)
	s := n.Start(t)
	ip := s.AllocateFor(t, "router")[0]
	plugin.SetScript(t, "DEL", `{"error":{"code":11,"msg":"locked"}}`)
	if a := s.Do(t, http.MethodDelete, "/v1/ipam/"+ip); a.Status != http.StatusInternalServerError {
		t.Fatal(a)
	}
	seen := scrape(t, s)
	for name, labels := range map[string][]string{
		"delegated_ipam_pending_releases":            {"pool", "default"},
		"delegated_ipam_pending_release_age_seconds": {"pool", "default"},
		"delegated_ipam_plugin_calls_total":          {"plugin", "scripted", "verb", "DEL", "outcome", "refused"},
		"delegated_ipam_events_total":                {"action", "release", "outcome", "failed"},
	} {
		if got := sum(seen, name, labels...); got <= 0 {
			t.Errorf("%s%q is %v; want more than 0", name, labels, got)
		}
	}
	plugin.ClearScript(t, "DEL")
	harness.Eventually(t, "the release to be counted when it has worked", func() error {
		seen := scrape(t, s)
		if sum(seen, "delegated_ipam_pending_releases") != 0 || sum(seen, "delegated_ipam_pending_release_age_seconds") != 0 ||
			sum(seen, "delegated_ipam_events_total", "action", "cleanup", "outcome", "success") != 1 {
			return fmt.Errorf("not yet: %v", seen["delegated_ipam_events_total"])
		}
		return nil
	})
}

func TestMetricsDefined(t *testing.T) {
	t.Parallel()
	seen := scrape(t, nodeWith(t, harness.DualStack()).Start(t))
	got, err := catalog.Of(prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) {
		return slices.Collect(maps.Values(seen)), nil
	}))
	want, wantErr := catalog.Of(metrics.Definitions())
	if err != nil || wantErr != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("a running sidecar has %+v, %v; docs/reference/metrics.md is generated from %+v, %v", got, err, want, wantErr)
	}
}

func TestMetricsAddressServesMetricsOnly(t *testing.T) {
	t.Parallel()
	n := nodeWith(t, harness.IPv4Only())
	s := n.Start(t, anyMetricsPort)
	address := metricsAddress(t, s)
	for _, path := range []string{"/", "/v1/ipam", "/v1/healthz", "/v1/config", "/debug/pprof/"} {
		if status, body := getTCP(t, address, path); status != http.StatusNotFound {
			t.Errorf("%s is answered %d %s; want 404", path, status, body)
		}
	}
	if resp, err := http.Post("http://"+address+"/v1/ipam?owner=router", "", http.NoBody); err != nil || resp.StatusCode != http.StatusNotFound {
		t.Errorf("an allocation is answered %v, %v; want 404", resp, err)
	}
	s.Stop(t)
	if conn, err := net.Dial("tcp", address); err == nil {
		conn.Close()
		t.Error("the address is still served after the stop")
	}
}

func TestMetricsAccess(t *testing.T) {
	t.Parallel()
	n := nodeWith(t, harness.IPv4Only())
	harness.Must(t, os.Chmod(n.Dir, 0o711))
	s := n.Start(t, "--socket-mode=0666", "--allow-uids=4242")
	for uid, want := range map[int]int{4242: http.StatusOK, 4243: http.StatusForbidden} {
		if a := s.DoAs(t, harness.User{UID: uid, GID: uid}, http.MethodGet, "/metrics"); a.Status != want || (want == http.StatusForbidden) == strings.Contains(string(a.Body), "delegated_ipam_") {
			t.Errorf("user %d is answered %s; want %d", uid, a, want)
		}
	}
	if a := s.DoAs(t, harness.User{UID: 4243, GID: 4243}, http.MethodPost, "/v1/ipam?owner=x"); a.Status != http.StatusForbidden {
		t.Fatal(a)
	}
	if got := sum(scrape(t, s), "delegated_ipam_api_requests_total", "operation", "POST /v1/ipam", "code", "403"); got != 1 {
		t.Errorf("%v requests of unauthorized callers are counted; want 1", got)
	}
}

func TestMetricsAddressInUse(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	harness.Must(t, err)
	defer l.Close()
	s := nodeWith(t, harness.IPv4Only()).Launch(t, "--metrics-address="+l.Addr().String())
	if code := s.Wait(t); code != 1 || !strings.Contains(s.Log(), "--metrics-address "+l.Addr().String()) {
		t.Errorf("the sidecar ended with %d:\n%s", code, s.Log())
	}
}

func TestScrapeNotLogged(t *testing.T) {
	t.Parallel()
	s := nodeWith(t, harness.IPv4Only()).Start(t, "--log-level=debug")
	scrape(t, s)
	s.Stop(t) // a request is logged after its response
	if strings.Contains(s.Log(), "/metrics") {
		t.Errorf("the scrape was logged:\n%s", s.Log())
	}
}

// getTCP sends a GET to a TCP address.
func getTCP(t *testing.T, address, path string) (status int, body string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+path, http.NoBody)
	harness.Must(t, err)
	resp, err := http.DefaultTransport.RoundTrip(req)
	harness.Must(t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	harness.Must(t, err)
	return resp.StatusCode, string(text)
}
