package nodenetwork

import (
	"maps"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/delegated-ipam/delegated-ipam/test/catalog"
)

func TestMetricsDocs(t *testing.T) {
	described, err := catalog.Read(filepath.Join("..", "..", "docs", "reference", "metrics.md"))
	if err != nil {
		t.Fatal(err)
	}
	maps.DeleteFunc(described, func(name string, _ catalog.Metric) bool { return !strings.HasPrefix(name, prefix) })
	registry := newStatus().registry
	gathered, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range catalog.Differences(described, gathered) {
		t.Error(d)
	}
	problems, err := testutil.GatherAndLint(registry)
	if err != nil || len(problems) > 0 {
		t.Errorf("linter: %v, %v", problems, err)
	}
}
