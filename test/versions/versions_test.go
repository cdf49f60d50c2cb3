package versions

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
)

// Each module pins the version of versions.txt.
func TestPinned(t *testing.T) {
	for _, p := range All() {
		want := regexp.MustCompile(`(?m)^(\t|require )` + regexp.QuoteMeta(p.Module+" "+p.Version) + `( //|$)`)
		for _, pin := range p.Pins {
			file := filepath.Join("..", "..", pin, "go.mod")
			data, err := os.ReadFile(file)
			check.Must(t, err)
			if !want.Match(data) {
				t.Errorf("%s does not require %s %s; run 'make versions'", file, p.Module, p.Version)
			}
		}
	}
	if got := Of("cilium"); !strings.HasPrefix(got, "v1.") {
		t.Errorf("the version of cilium is %q", got)
	}
	if got := Of("none"); got != "" {
		t.Errorf("an unknown program has version %q", got)
	}
}
