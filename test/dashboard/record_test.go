// Package dashboard records what the panels of the Grafana dashboard show while real sidecars and a
// real bridge run over the real host-local, with faults. Plain "go test" skips it; "make screenshot"
// runs it and draws the panels.
package dashboard

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }

// TestRecord writes panels.json into the directory DASHBOARD_DIR. DASHBOARD_BRIDGE is the program of
// the bridge, and DASHBOARD_DURATION the time that is recorded.
func TestRecord(t *testing.T) {
	dir := os.Getenv("DASHBOARD_DIR")
	if dir == "" {
		t.Skip("the recording takes minutes and needs prometheus; run 'make screenshot'")
	}
	duration, err := time.ParseDuration(os.Getenv("DASHBOARD_DURATION"))
	harness.Must(t, err)

	c := newCluster(t, os.Getenv("DASHBOARD_BRIDGE"))
	p := startPrometheus(t, c.targets())
	start := time.Now()
	c.run(t, duration)
	panels := record(t, p, filepath.Join("..", "..", "deploy", "grafana", "delegated-ipam.json"), start, time.Now())
	harness.Must(t, os.WriteFile(filepath.Join(dir, "panels.json"), panels, 0o644))
}
