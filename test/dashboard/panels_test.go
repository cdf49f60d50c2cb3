// Package dashboard records what the panels of the Grafana dashboard show while real daemons and a
// real bridge run over the real host-local, with faults. Plain "go test" skips it; "make screenshot"
// runs it and draws the panels.
package dashboard

import (
	"cmp"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

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
func record(t *testing.T, p prometheus, dashboard string, start, end time.Time) []byte {
	t.Helper()
	data, err := os.ReadFile(dashboard)
	check.Must(t, err)
	var d struct {
		Title  string  `json:"title"`
		Panels []panel `json:"panels"`
	}
	check.Must(t, json.Unmarshal(data, &d))
	withData := 0
	for i := range d.Panels {
		panel := &d.Panels[i]
		for _, target := range panel.Targets {
			found, err := p.queryRange(variables.Replace(target.Expr), start, end)
			check.Must(t, err)
			for _, s := range found {
				panel.Lines = append(panel.Lines, lineOf(t, s, target.LegendFormat))
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
func lineOf(t *testing.T, s series, legend string) line {
	t.Helper()
	l := line{Name: label.ReplaceAllStringFunc(legend, func(name string) string { return s.Labels[strings.Trim(name, "{}")] })}
	for _, pair := range s.Values {
		at, isNumber := pair[0].(float64)
		text, isText := pair[1].(string)
		if !isNumber || !isText {
			t.Fatalf("%s has the point %v; want a time and a number as text", l.Name, pair)
		}
		point := [2]*float64{&at, nil}
		if value, err := strconv.ParseFloat(text, 64); err == nil && text != "NaN" && text != "+Inf" && text != "-Inf" {
			point[1] = &value
		}
		l.Points = append(l.Points, point)
	}
	return l
}
