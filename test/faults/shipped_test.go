package faults

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/internal/failpoint"
	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

func TestShippedBinaryHasNoFailpoints(t *testing.T) {
	t.Parallel()
	shipped := filepath.Join(t.TempDir(), "delegated-ipam")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-buildvcs=false", "-o", shipped, "../../cmd/delegated-ipam")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", cmd, err, out)
	}
	for _, name := range append(failpoint.All(), failpoint.EnvPlan) {
		if contains(t, shipped, string(name)) {
			t.Errorf("the shipped binary contains %q", name)
		}
		if !contains(t, harness.Failpoints(t), string(name)) {
			t.Errorf("the binary with failpoints does not contain %q, so the search proves nothing", name)
		}
	}
}

func contains(t *testing.T, file, text string) bool {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return bytes.Contains(data, []byte(text))
}
