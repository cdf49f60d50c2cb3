package dashboard

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/prometheus/client_golang/api"
	v1 "github.com/prometheus/client_golang/api/prometheus/v1"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

const (
	scrapeInterval = time.Second
	// step is the distance of the points of a panel.
	step = 2 * time.Second
)

// startPrometheus runs Prometheus until the test ends. The targets are addresses by job and
// instance.
func startPrometheus(t *testing.T, targets map[string]map[string]string) v1.API {
	t.Helper()
	var jobs []any
	for job, instances := range targets {
		var groups []any
		for instance, address := range instances {
			groups = append(groups, map[string]any{"targets": []string{address}, "labels": map[string]string{"instance": instance}})
		}
		jobs = append(jobs, map[string]any{"job_name": job, "static_configs": groups})
	}
	config, err := json.Marshal(map[string]any{ // JSON is YAML
		"global":         map[string]string{"scrape_interval": scrapeInterval.String()},
		"scrape_configs": jobs,
	})
	check.Must(t, err)
	dir := t.TempDir()
	file, address := filepath.Join(dir, "prometheus.yml"), check.FreeAddress(t)
	check.Must(t, os.WriteFile(file, config, 0o600))
	startProgram(t, "prometheus", "--config.file="+file, "--storage.tsdb.path="+filepath.Join(dir, "data"),
		"--web.listen-address="+address, "--log.level=error")
	client, err := api.NewClient(api.Config{Address: "http://" + address})
	check.Must(t, err)
	p := v1.NewAPI(client)
	harness.Eventually(t, "Prometheus to be ready", func() error {
		_, _, err := p.Query(t.Context(), "up", time.Now())
		return err
	})
	return p
}
