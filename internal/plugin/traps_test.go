package plugin

import (
	"os/exec"
	"strings"
	"testing"
)

// Trap: libcni's result cache is shared with the container runtime.
func TestNoSharedResultCache(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", "./...").CombinedOutput()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, out)
	}
	packages := strings.Fields(string(out))
	invoke := 0
	for _, p := range packages {
		switch {
		case strings.HasSuffix(p, "containernetworking/cni/libcni"):
			t.Errorf("%s is a dependency; its cache is the container runtime's, too", p)
		case strings.HasSuffix(p, "containernetworking/cni/pkg/invoke"):
			invoke++
		}
	}
	if invoke != 1 {
		t.Errorf("found pkg/invoke %d times among %d packages, want once, or this test proves nothing", invoke, len(packages))
	}
}
