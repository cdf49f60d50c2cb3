// Package catalog reads the tables of docs/reference/metrics.md. Tests compare them with registries,
// dashboards and alerts.
package catalog

import (
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"

	dto "github.com/prometheus/client_model/go"
)

// Metric is one row of the tables.
type Metric struct {
	// Type is counter, gauge or histogram.
	Type string
	// Labels are the values by label; nil for a label whose values are not known in advance.
	Labels map[string][]string
}

var (
	row   = regexp.MustCompile("(?m)^\\| `(delegated_ipam_[a-z_]+)` \\| ([a-z]+) \\| (.*?) \\|")
	label = regexp.MustCompile("`([a-z]+)`(?: \\(([^)]*)\\))?")
)

// Read returns the metrics that a page documents, by name.
func Read(page string) (map[string]Metric, error) {
	text, err := os.ReadFile(page)
	if err != nil {
		return nil, err
	}
	all := map[string]Metric{}
	for _, m := range row.FindAllStringSubmatch(string(text), -1) {
		if _, twice := all[m[1]]; twice {
			return nil, fmt.Errorf("%s documents %s twice", page, m[1])
		}
		metric := Metric{Type: m[2], Labels: map[string][]string{}}
		for _, l := range label.FindAllStringSubmatch(m[3], -1) {
			metric.Labels[l[1]] = nil
			if l[2] != "" {
				metric.Labels[l[1]] = strings.Split(l[2], ", ")
			}
		}
		all[m[1]] = metric
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%s documents no metric", page)
	}
	return all, nil
}

// Differences compares the documented metrics with the metrics of a registry: names, types, labels,
// and the label values that are known in advance.
func Differences(documented map[string]Metric, gathered []*dto.MetricFamily) []string {
	var found []string
	seen := map[string]bool{}
	for _, family := range gathered {
		name := family.GetName()
		if !isOurs(family) {
			continue
		}
		seen[name] = true
		d, ok := documented[name]
		if !ok {
			found = append(found, name+" is not documented")
			continue
		}
		found = append(found, d.differences(name, family)...)
	}
	for name := range documented {
		if !seen[name] {
			found = append(found, name+" is documented, and does not exist")
		}
	}
	slices.Sort(found)
	return found
}

func (d Metric) differences(name string, family *dto.MetricFamily) []string {
	var found []string
	if typ := strings.ToLower(family.GetType().String()); typ != d.Type {
		found = append(found, fmt.Sprintf("%s is a %s, documented as %s", name, typ, d.Type))
	}
	labels := map[string]map[string]bool{}
	for _, m := range family.GetMetric() {
		for _, l := range m.GetLabel() {
			if labels[l.GetName()] == nil {
				labels[l.GetName()] = map[string]bool{}
			}
			labels[l.GetName()][l.GetValue()] = true
		}
	}
	if got, want := sorted(labels), sorted(d.Labels); !slices.Equal(got, want) {
		return append(found, fmt.Sprintf("%s has the labels %q, documented with %q", name, got, want))
	}
	for l, values := range d.Labels {
		want := slices.Sorted(slices.Values(values))
		if got := sorted(labels[l]); values != nil && !slices.Equal(got, want) {
			found = append(found, fmt.Sprintf("%s has the values %q of %s, documented with %q", name, got, l, want))
		}
	}
	return found
}

func sorted[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
