package bridge

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/test/catalog"
)

func TestMetricsDocs(t *testing.T) {
	gathered, err := newMetrics().registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	found, err := catalog.Check(filepath.Join("..", ".."), func(name string) bool { return strings.HasPrefix(name, prefix) }, gathered)
	if err != nil || len(found) > 0 {
		t.Errorf("differences from the page, and problems: %q, %v", found, err)
	}
}
