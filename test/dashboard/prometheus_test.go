package dashboard

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

const (
	scrapeInterval = time.Second
	// step is the distance of the points of a panel.
	step = 2 * time.Second
)

// prometheus is the URL of a running Prometheus.
type prometheus string

// startPrometheus runs Prometheus until the test ends. The targets are addresses by job and
// instance.
func startPrometheus(t *testing.T, targets map[string]map[string]string) prometheus {
	t.Helper()
	program, err := exec.LookPath("prometheus")
	if err != nil {
		t.Fatalf("%v; install Prometheus, such as Debian's package prometheus", err)
	}
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
	cmd := exec.Command(program, "--config.file="+file, "--storage.tsdb.path="+filepath.Join(dir, "data"),
		"--web.listen-address="+address, "--log.level=error")
	cmd.Stderr = os.Stderr
	check.Must(t, cmd.Start())
	t.Cleanup(func() {
		check.Must(t, cmd.Process.Kill())
		_ = cmd.Wait() // it was killed
	})
	p := prometheus("http://" + address)
	harness.Eventually(t, "Prometheus to be ready", func() error {
		resp, err := http.Get(string(p) + "/-/ready")
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return errors.New(resp.Status)
		}
		return nil
	})
	return p
}

// series is one line of a panel.
type series struct {
	Labels map[string]string `json:"metric"`
	// Values are pairs of a time in seconds since 1970 and a number as text.
	Values [][2]any `json:"values"`
}

// queryRange evaluates a query at each step of a time.
func (p prometheus) queryRange(query string, start, end time.Time) ([]series, error) {
	resp, err := http.PostForm(string(p)+"/api/v1/query_range", url.Values{
		"query": {query}, "step": {strconv.FormatFloat(step.Seconds(), 'f', -1, 64)},
		"start": {strconv.FormatInt(start.Unix(), 10)}, "end": {strconv.FormatInt(end.Unix(), 10)},
	})
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	var answer struct {
		Error string
		Data  struct{ Result []series }
	}
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil {
		return nil, err
	}
	if answer.Error != "" {
		return nil, fmt.Errorf("query %q: %s", query, answer.Error)
	}
	return answer.Data.Result, nil
}
