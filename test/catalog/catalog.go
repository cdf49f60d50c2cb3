// Package catalog describes the metrics of a registry, for docs/reference/metrics.md and for tests.
package catalog

import (
	"maps"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// Metric is a metric as it is documented.
type Metric struct {
	// Type is counter, gauge or histogram.
	Type string
	Help string
	// Labels are the values by label, sorted; nil for a label whose values are not known in advance.
	Labels map[string][]string
}

// open are labels whose values are not known in advance, besides those that have the value _other.
var open = []string{"version", "goversion", "code", "operation", "pool"}

// Of returns the metrics of delegated-ipam in a registry by name. A registry has every series that is
// known in advance.
func Of(gatherers ...prometheus.Gatherer) (map[string]Metric, error) {
	gathered, err := prometheus.Gatherers(gatherers).Gather()
	all := map[string]Metric{}
	for _, family := range gathered {
		if strings.HasPrefix(family.GetName(), "delegated_ipam_") {
			all[family.GetName()] = Metric{strings.ToLower(family.GetType().String()), family.GetHelp(), labels(family)}
		}
	}
	return all, err
}

func labels(family *dto.MetricFamily) map[string][]string {
	values := map[string]map[string]bool{}
	for _, m := range family.GetMetric() {
		for _, l := range m.GetLabel() {
			if values[l.GetName()] == nil {
				values[l.GetName()] = map[string]bool{}
			}
			values[l.GetName()][l.GetValue()] = true
		}
	}
	all := map[string][]string{}
	for name, of := range values {
		if all[name] = nil; !of["_other"] && !slices.Contains(open, name) {
			all[name] = slices.Sorted(maps.Keys(of))
		}
	}
	return all
}
