package catalog

import (
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"
)

// Check compares the metrics of one program with their rows in docs/reference/metrics.md below root, the
// directory of the repository, and returns the differences and the problems that the linter of
// Prometheus finds. belongs reports whether a metric of the page is one of the program.
func Check(root string, belongs func(name string) bool, gathered []*dto.MetricFamily) ([]string, error) {
	documented, err := Read(filepath.Join(root, "docs", "reference", "metrics.md"))
	if err != nil {
		return nil, err
	}
	maps.DeleteFunc(documented, func(name string, _ Metric) bool { return !belongs(name) })
	found := Differences(documented, gathered)
	ours := slices.DeleteFunc(slices.Clone(gathered), func(f *dto.MetricFamily) bool { return !isOurs(f) })
	problems, err := promlint.NewWithMetricFamilies(ours).Lint()
	for _, p := range problems {
		found = append(found, p.Metric+": "+p.Text)
	}
	return found, err
}

// isOurs reports whether a metric is not one of the Go runtime or the process.
func isOurs(f *dto.MetricFamily) bool { return strings.HasPrefix(f.GetName(), "delegated_ipam_") }
