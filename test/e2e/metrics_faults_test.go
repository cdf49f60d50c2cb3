package e2e

import (
	"fmt"
	"net/http"
	"os"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

// wantMetrics waits until a scrape has the values, by metric name and one label.
func wantMetrics(t *testing.T, s *harness.Sidecar, want map[[3]string]float64) {
	t.Helper()
	harness.Eventually(t, "the metrics", func() error {
		seen := scrape(t, s)
		for series, value := range want {
			name := "delegated_ipam_" + series[0]
			if seen[name] == nil {
				return fmt.Errorf("missing metric %s", name)
			}
			if got := sum(seen, name, series[1], series[2]); got != value {
				return fmt.Errorf("%q is %v; want %v, among %v", series, got, value, seen[name])
			}
		}
		return nil
	})
}

func TestMetricsPluginFailure(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ script, outcome, timeout string }{
		"CNI error":     {`{"error":{"code":11,"msg":"no address is left"}}`, "refused", "1m"},
		"killed":        {`{"killSelf":9}`, "unknown", "1m"},
		"hangs":         {`{"hang":true}`, "unknown", "5s"},
		"not JSON":      {`{"stdout":"nonsense"}`, "unknown", "1m"},
		"silent exit 3": {`{"exitCode":3}`, "unknown", "1m"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n, plugin := scriptedNode(t, "scripted", nil)
			s := n.Start(t, "--plugin-timeout="+tt.timeout)
			plugin.SetScript(t, "ADD", tt.script)
			s.TryAllocate(t, harness.Request{Owner: "router", Family: "ipv4"}).WantStatus(t, http.StatusBadGateway)
			wantMetrics(t, s, map[[3]string]float64{
				{"api_requests_total", "code", "502"}:             1,
				{"addresses"}:                                     0,
				{"plugin_processes"}:                              0,
				{"plugin_calls_total", "outcome", tt.outcome}:     1,
				{"plugin_calls_total", "outcome", "not-started"}:  0,
				{"plugin_call_duration_seconds", "verb", "ADD"}:   1,
				{"journal_failures_total", "operation", "write"}:  0,
				{"events_total", "outcome", "failed"}:             1,
				{"events_total", "outcome", "rejected"}:           0,
				{"api_requests_total", "operation", "_other"}:     0,
				{"pending_release_age_seconds", "pool", "_other"}: 0,
			})
			plugin.ClearScript(t, "ADD")
			s.AllocateFor(t, "router")
			wantMetrics(t, s, map[[3]string]float64{{"attachments", "state", "held"}: 1, {"addresses"}: 1, {"ready"}: 1})
		})
	}
}

func TestMetricsLostAndExpired(t *testing.T) {
	t.Parallel()
	n := nodeWith(t, harness.IPv4Only())
	s := n.Start(t, "--verify-interval=0s", "--ipam-expiration=1ms")
	s.AllocateFor(t, "router")
	n.WipeStore(t)
	n.ResetHistory()
	s.AllocateFor(t, "router")
	wantMetrics(t, s, map[[3]string]float64{{"attachments_lost_total"}: 1, {"lost_attachments"}: 0, {"attachments", "state", "held"}: 1})
	s.Allocate(t, harness.Request{Owner: "health", Expire: true})
	wantMetrics(t, s, map[[3]string]float64{
		{"allocations_expired_total"}: 1, {"events_total", "action", "expire"}: 1, {"attachments"}: 1, {"addresses"}: 1, {"duplicate_addresses_total"}: 0,
	})
	s.Do(t, http.MethodGet, "/v1/none").WantStatus(t, http.StatusNotFound)
	s.Do(t, http.MethodGet, "/v1/none-either").WantStatus(t, http.StatusNotFound)
	wantMetrics(t, s, map[[3]string]float64{{"api_requests_total", "operation", "_other"}: 2})
	n.ResetHistory()
	s.Stop(t)

	s = n.Start(t)
	wantMetrics(t, s, map[[3]string]float64{
		{"attachments", "state", "held"}: 1, {"addresses"}: 1, {"attachments_lost_total"}: 0, {"allocations_expired_total"}: 0, {"events_total"}: 0, {"ready"}: 1,
	})
}

func TestMetricsJournalFailure(t *testing.T) {
	t.Parallel()
	n := nodeWith(t, harness.IPv4Only())
	s := n.Start(t)
	s.AllocateFor(t, "router")
	harness.Must(t, os.Rename(n.StateDir, n.StateDir+".away"))
	s.TryAllocate(t, harness.Request{Owner: "health"}).WantStatus(t, http.StatusBadGateway)
	seen := scrape(t, s)
	if got := sum(seen, "delegated_ipam_journal_failures_total", "operation", "write"); got < 1 {
		t.Errorf("%v failures of the journal are counted; want one at least", got)
	}
	wantMetrics(t, s, map[[3]string]float64{{"ready"}: 0, {"addresses"}: 1})
	harness.Must(t, os.Rename(n.StateDir+".away", n.StateDir))
	wantMetrics(t, s, map[[3]string]float64{{"ready"}: 1})
}
