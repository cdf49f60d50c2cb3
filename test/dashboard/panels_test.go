// Package dashboard records what the panels of the Grafana dashboard show while real daemons and a
// real bridge run over the real host-local, with faults. Plain "go test" skips it; "make screenshot"
// runs it and draws the panels.
package dashboard

import (
	"cmp"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/model"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
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
	check.Must(t, err)

	c := newCluster(t, os.Getenv("DASHBOARD_BRIDGE"))
	p := startPrometheus(t, c.targets())
	start := time.Now()
	c.run(t, duration)
	panels := record(t, p, filepath.Join("..", "..", "deploy", "grafana", "delegated-ipam.json"), start, time.Now())
	check.Must(t, os.WriteFile(filepath.Join(dir, "panels.json"), panels, 0o644))
}

// variables are the values of the dashboard's variables.
var variables = strings.NewReplacer("$__rate_interval", "10s", "$instance", ".*", "$pool", ".*", "$bridge", ".*")

// label is a label in a legend, such as {{pool}}.
var label = regexp.MustCompile(`\{\{(\w+)\}\}`)

// panel has the parts of a panel of Grafana's format that name its queries, and what they gave.
type panel struct {
	Title       string          `json:"title"`
	Type        string          `json:"type"`
	GridPos     json.RawMessage `json:"gridPos"`
	FieldConfig json.RawMessage `json:"fieldConfig"`
	Targets     []struct {
		Expr         string `json:"expr"`
		LegendFormat string `json:"legendFormat"`
	} `json:"targets,omitempty"`
	Lines []line `json:"lines"`
}

// line is a series with the name of its legend. A number that JSON lacks is nil.
type line struct {
	Name   string        `json:"name"`
	Points [][2]*float64 `json:"points"`
}

// record evaluates all queries of a dashboard, and returns the panels with the results as JSON.
func record(t *testing.T, p v1.API, dashboard string, start, end time.Time) []byte {
	t.Helper()
	data, err := os.ReadFile(dashboard)
	check.Must(t, err)
	var d struct {
		Title  string  `json:"title"`
		Panels []panel `json:"panels"`
	}
	check.Must(t, json.Unmarshal(data, &d))
	withData := 0
	at := v1.Range{Start: start.Truncate(time.Second), End: end.Truncate(time.Second), Step: step} // the page draws whole seconds
	for i := range d.Panels {
		panel := &d.Panels[i]
		for _, target := range panel.Targets {
			found, _, err := p.QueryRange(t.Context(), variables.Replace(target.Expr), at)
			check.Must(t, err)
			for _, s := range found.(model.Matrix) {
				panel.Lines = append(panel.Lines, lineOf(s, target.LegendFormat))
			}
		}
		slices.SortFunc(panel.Lines, func(a, b line) int { return cmp.Compare(a.Name, b.Name) })
		if len(panel.Lines) > 0 {
			withData++
		}
	}
	if withData == 0 {
		t.Fatal("no panel has data")
	}
	out, err := json.Marshal(map[string]any{"title": d.Title, "panels": d.Panels, "start": start.Unix(), "end": end.Unix(), "step": step.Seconds()})
	check.Must(t, err)
	return out
}

// lineOf returns a series with the name that the legend gives it.
func lineOf(s *model.SampleStream, legend string) line {
	l := line{Name: label.ReplaceAllStringFunc(legend, func(name string) string { return string(s.Metric[model.LabelName(strings.Trim(name, "{}"))]) })}
	for _, pair := range s.Values {
		at, value := float64(pair.Timestamp)/1000, float64(pair.Value)
		point := [2]*float64{&at, &value}
		if math.IsNaN(value) || math.IsInf(value, 0) {
			point[1] = nil
		}
		l.Points = append(l.Points, point)
	}
	return l
}
