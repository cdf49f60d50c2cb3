// Package harness runs the real binary with the real host-local plugin for
// tests that look at both from outside: over the socket, through the command
// line, and in the folders that each of them keeps.
package harness

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

const (
	// EnvBinary names the delegated-ipam binary under test. Without it Main
	// builds one.
	EnvBinary = "DELEGATED_IPAM_TEST_BIN"
	// EnvPlugins names a folder with the real host-local. Without it Main
	// builds it from the module that tools/plugins/go.mod pins.
	EnvPlugins = "DELEGATED_IPAM_TEST_PLUGINS"

	module    = "github.com/delegated-ipam/delegated-ipam"
	hostLocal = "github.com/containernetworking/plugins/plugins/ipam/host-local"
)

// Main runs a test package whose tests need the binaries: call it from
// TestMain. It builds those that the environment does not name, once for the
// process, and removes them again. It does not return.
func Main(m *testing.M) {
	dir, err := os.MkdirTemp("", "dip-bin-")
	if err == nil {
		err = buildMissing(dir)
	}
	code := 1
	if err != nil {
		fmt.Fprintf(os.Stderr, "harness: the binaries under test: %v\n", err)
	} else {
		code = m.Run()
	}
	os.RemoveAll(dir)
	os.Exit(code)
}

// Binary returns the path of the delegated-ipam binary under test.
func Binary(t testing.TB) string {
	t.Helper()
	return fromEnv(t, EnvBinary)
}

// moduleRoot returns the folder of the main module.
func moduleRoot() (string, error) {
	cmd := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", module)
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("go list -m %s: %w", module, err)
	}
	return strings.TrimSpace(string(out)), nil
}

func fromEnv(t testing.TB, name string) string {
	t.Helper()
	path := os.Getenv(name)
	if path == "" {
		t.Fatalf("$%s is empty; call harness.Main from TestMain", name)
	}
	return path
}

func buildMissing(dir string) error {
	root, err := moduleRoot()
	if err != nil {
		return err
	}
	binary := filepath.Join(dir, "delegated-ipam")
	if err := buildUnlessNamed(EnvBinary, binary, root, "-o", binary, "./cmd/delegated-ipam"); err != nil {
		return err
	}
	plugins := filepath.Join(root, "tools", "plugins")
	return buildUnlessNamed(EnvPlugins, dir, plugins, "-o", filepath.Join(dir, "host-local"), hostLocal)
}

// buildUnlessNamed builds in a folder and sets the variable to the result, if
// the variable is not set yet.
func buildUnlessNamed(variable, result, in string, args ...string) error {
	if os.Getenv(variable) != "" {
		return nil
	}
	cmd := exec.Command("go", append([]string{"build", "-buildvcs=false"}, args...)...)
	cmd.Dir = in
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s in %s: %w\n%s", cmd, in, err, out)
	}
	return os.Setenv(variable, result)
}
