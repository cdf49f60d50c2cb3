// Package observe checks the dashboard and the alerts with Prometheus' parsers and rule engine.
package observe

import (
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/delegated-ipam/delegated-ipam/internal/bridge"
	daemon "github.com/delegated-ipam/delegated-ipam/internal/daemon/metrics"
	"github.com/delegated-ipam/delegated-ipam/internal/nodenetwork"
	"github.com/delegated-ipam/delegated-ipam/test/catalog"
)

// fromOutside has the metrics of Prometheus and of its client library, with their labels.
var fromOutside = map[string][]string{"up": nil, "process_resident_memory_bytes": nil}

// ofScrape has the labels that Prometheus adds to each series.
var ofScrape = []string{"job", "instance"}

// metrics returns the metrics of all programs.
func metrics(t *testing.T) map[string]catalog.Metric {
	t.Helper()
	all, err := catalog.Of(daemon.Definitions(), bridge.Definitions(), nodenetwork.Definitions())
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func repository(path ...string) string {
	return filepath.Join(append([]string{"..", "..", ".."}, path...)...)
}

// variable matches a variable of Grafana in a label matcher.
var variable = regexp.MustCompile(`\$[a-z_]+`)

// problems returns the errors in a query: an unknown metric, a label that the metric lacks, or a
// value that the label never has.
func problems(known map[string]catalog.Metric, query string) []string {
	expr, err := parser.ParseExpr(query)
	if err != nil {
		return []string{err.Error()}
	}
	var found []string
	available := map[string]bool{}
	parser.Inspect(expr, func(node parser.Node, _ []parser.Node) error {
		if s, ok := node.(*parser.VectorSelector); ok {
			found = append(found, ofSelector(known, s, available)...)
		}
		return nil
	})
	parser.Inspect(expr, func(node parser.Node, _ []parser.Node) error {
		for _, l := range groupedBy(node) {
			if !available[l] {
				found = append(found, "no metric in it has the label "+l)
			}
		}
		return nil
	})
	return found
}

// groupedBy returns the labels by which a node groups or joins.
func groupedBy(node parser.Node) []string {
	switch n := node.(type) {
	case *parser.AggregateExpr:
		return n.Grouping
	case *parser.BinaryExpr:
		if n.VectorMatching != nil {
			return n.VectorMatching.MatchingLabels
		}
	}
	return nil
}

func ofSelector(known map[string]catalog.Metric, s *parser.VectorSelector, available map[string]bool) []string {
	has, values, ok := labelsOf(known, s.Name)
	if !ok {
		return []string{"missing metric " + s.Name}
	}
	for _, l := range has {
		available[l] = true
	}
	var found []string
	for _, m := range s.LabelMatchers {
		switch {
		case m.Name == labels.MetricName:
		case !slices.Contains(has, m.Name):
			found = append(found, s.Name+" has no label "+m.Name)
		case values[m.Name] != nil && !variable.MatchString(m.Value):
			found = append(found, ofValue(s.Name, m, values[m.Name])...)
		}
	}
	return found
}

// ofValue returns an error for each value in a matcher that the label never has.
func ofValue(metric string, m *labels.Matcher, can []string) []string {
	named := []string{m.Value}
	if m.Type == labels.MatchRegexp || m.Type == labels.MatchNotRegexp {
		named = strings.Split(m.Value, "|")
	}
	var found []string
	for _, v := range named {
		if !slices.Contains(can, v) {
			found = append(found, metric+": "+m.Name+" is never "+v)
		}
	}
	return found
}

// labelsOf returns the labels of a series, and the values of those with a known set.
func labelsOf(known map[string]catalog.Metric, series string) (has []string, values map[string][]string, ok bool) {
	if theirs, is := fromOutside[series]; is {
		return slices.Concat(ofScrape, theirs), nil, true
	}
	m, ok := known[series]
	if ok && m.Type == "histogram" {
		return nil, nil, false // a histogram has no series of that name
	}
	has = slices.Concat(ofScrape, slices.Collect(maps.Keys(m.Labels)))
	for _, part := range []string{"_bucket", "_count", "_sum"} {
		if h, is := known[strings.TrimSuffix(series, part)]; !ok && is && h.Type == "histogram" {
			m, ok = h, true
			has = slices.Concat(ofScrape, slices.Collect(maps.Keys(m.Labels)))
			if part == "_bucket" {
				has = append(has, labels.BucketLabel)
			}
		}
	}
	return has, m.Labels, ok
}

func TestProblems(t *testing.T) {
	known := metrics(t)
	for query, want := range map[string]string{
		`sum(`:                       "parse error",
		`delegated_ipam_nothing > 0`: "missing metric",
		`delegated_ipam_plugin_call_duration_seconds > 0`:                                "missing metric",
		`delegated_ipam_ready_bucket > 0`:                                                "missing metric",
		`delegated_ipam_ready{pool="default"}`:                                           "has no label pool",
		`delegated_ipam_attachments{state="free"}`:                                       "is never free",
		`delegated_ipam_plugin_calls_total{verb=~"ADD|DELETE"}`:                          "is never DELETE",
		`sum by (le) (delegated_ipam_queue_wait_seconds_count)`:                          "has the label le",
		`sum by (owner) (delegated_ipam_attachments)`:                                    "has the label owner",
		`delegated_ipam_attachments and on (pool, node) delegated_ipam_lost_attachments`: "has the label node",
	} {
		if found := problems(known, query); !strings.Contains(strings.Join(found, "; "), want) {
			t.Errorf("problems of %s: %q; want %q", query, found, want)
		}
	}
	if found := problems(known, `sum by (le, queue, job) (rate(delegated_ipam_queue_wait_seconds_bucket{queue="attachment",instance=~"$instance"}[5m]))`); len(found) > 0 {
		t.Errorf("problems of a valid query: %q", found)
	}
}
