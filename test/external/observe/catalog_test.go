// Package observe judges the dashboard and the alerts by Prometheus' own parsers
// and rule engine. It is a module of its own, because the product must not
// depend on Prometheus' server.
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

	"github.com/delegated-ipam/delegated-ipam/test/catalog"
)

// fromOutside are metrics that are not ours, with the labels of theirs that may be used.
var fromOutside = map[string][]string{"up": nil, "process_resident_memory_bytes": nil}

// ofScrape are the labels that Prometheus gives each series.
var ofScrape = []string{"job", "instance"}

// metrics are those of docs/metrics.md, which other tests compare with the programs.
func metrics(t *testing.T) map[string]catalog.Metric {
	t.Helper()
	all, err := catalog.Read(repository("docs", "metrics.md"))
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func repository(path ...string) string {
	return filepath.Join(append([]string{"..", "..", ".."}, path...)...)
}

// variable is a variable of Grafana inside a matcher.
var variable = regexp.MustCompile(`\$[a-z_]+`)

// problems are what is wrong with a query: a metric that does not exist, a label
// that it does not have, a value that the label cannot have.
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
				found = append(found, "no metric of it has the label "+l)
			}
		}
		return nil
	})
	return found
}

// groupedBy are the labels that a node groups or joins by.
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
		return []string{"there is no metric " + s.Name}
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

// ofValue tells of values that a matcher names and the label cannot have.
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

// labelsOf returns the labels of a series, and the values of those that are known.
func labelsOf(known map[string]catalog.Metric, series string) (has []string, values map[string][]string, ok bool) {
	if theirs, is := fromOutside[series]; is {
		return slices.Concat(ofScrape, theirs), nil, true
	}
	m, ok := known[series]
	if ok && m.Type == "histogram" {
		return nil, nil, false // it has no series of that name
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

func TestAWrongQueryIsFound(t *testing.T) {
	known := metrics(t)
	for query, want := range map[string]string{
		`sum(`:                       "parse error",
		`delegated_ipam_nothing > 0`: "there is no metric",
		`delegated_ipam_plugin_call_duration_seconds > 0`:                                "there is no metric",
		`delegated_ipam_ready_bucket > 0`:                                                "there is no metric",
		`delegated_ipam_ready{pool="default"}`:                                           "has no label pool",
		`delegated_ipam_attachments{state="free"}`:                                       "is never free",
		`delegated_ipam_plugin_calls_total{verb=~"ADD|DELETE"}`:                          "is never DELETE",
		`sum by (le) (delegated_ipam_queue_wait_seconds_count)`:                          "has the label le",
		`sum by (owner) (delegated_ipam_attachments)`:                                    "has the label owner",
		`delegated_ipam_attachments and on (pool, node) delegated_ipam_lost_attachments`: "has the label node",
	} {
		if found := problems(known, query); !strings.Contains(strings.Join(found, "; "), want) {
			t.Errorf("of %s it is found %q; want %q", query, found, want)
		}
	}
	if found := problems(known, `sum by (le, queue, job) (rate(delegated_ipam_queue_wait_seconds_bucket{queue="attachment",instance=~"$instance"}[5m]))`); len(found) > 0 {
		t.Errorf("of a good query it is found %q", found)
	}
}
