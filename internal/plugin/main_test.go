package plugin

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"
)

// fakeBinary is the variable in which TestMain has the path of the scripted plugin (test/scripted),
// for its tests and the processes that they start.
const fakeBinary = "DELEGATED_IPAM_TEST_SCRIPTED"

func TestMain(m *testing.M) {
	if dir := os.Getenv(previousRun); dir != "" {
		if err := addInPreviousRun(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(runWithFakePlugin(m))
}

func runWithFakePlugin(m *testing.M) int {
	dir, err := os.MkdirTemp("", "delegate-test-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	binary := filepath.Join(dir, "scripted")
	build := exec.Command("go", "build", "-o", binary, "../../test/scripted")
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "building the scripted plugin: %v\n%s", err, out)
		return 1
	}
	if err := os.Setenv(fakeBinary, binary); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	code := m.Run()
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}
