package contract

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

var (
	// demo matches the commands of README.md that begin with a curl line, and their output.
	demo = regexp.MustCompile("(?s)```sh\n(curl .*?)```\n.*?```text\n(.*?)```\n")
	// containerIDHash and age differ between runs: the first one depends on the node's name.
	containerIDHash = regexp.MustCompile(`-[0-9a-f]{16}\b`)
	age             = regexp.MustCompile(`\b(?:\d+m)?\d+s\b`)
)

// TestDemo runs the demo of README.md and compares its output.
func TestDemo(t *testing.T) {
	t.Parallel()
	requireCurl(t)
	text, err := os.ReadFile(filepath.Join(documentation, "README.md"))
	harness.Must(t, err)
	block := demo.FindSubmatch(text)
	if block == nil {
		t.Fatalf("README.md has no demo that matches %s", demo)
	}
	n := startAsMakeRun(t)
	harness.Must(t, os.Symlink(harness.Binary(t), filepath.Join(n.BinDir, "delegated-ipam")))
	cmd := exec.CommandContext(t.Context(), "sh", "-ec", string(block[1]))
	cmd.Dir = n.Dir
	var failure strings.Builder
	cmd.Stderr = &failure
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("the demo of README.md: %v; it printed %q and %q", err, out, failure.String())
	}
	if got, want := withoutVarying(string(out)), withoutVarying(string(block[2])); got != want {
		t.Errorf("the demo of README.md prints\n%s\nbut README.md shows\n%s", got, want)
	}
}

// withoutVarying replaces what differs between runs.
func withoutVarying(output string) string {
	output = containerIDHash.ReplaceAllString(output, "-HASH")
	return strings.TrimSpace(age.ReplaceAllString(output, "AGE"))
}
