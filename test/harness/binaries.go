// Package harness runs the real binary with real and scripted IPAM plugins for
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
	// EnvPlugins names a folder with the real host-local and static. Without it
	// Main builds them from the module that tools/plugins/go.mod pins.
	EnvPlugins = "DELEGATED_IPAM_TEST_PLUGINS"
	// EnvOldPlugins names a folder with the host-local of plugins v1.4.0, which
	// knows nothing above CNI 1.0.0. Without it Main builds that one, too.
	EnvOldPlugins = "DELEGATED_IPAM_TEST_OLD_PLUGINS"
	// EnvScripted names the scripted plugin. Without it Main builds it.
	EnvScripted = "DELEGATED_IPAM_TEST_SCRIPTED"
	// EnvFailpoints names the delegated-ipam binary with failpoints (pkg/failpoint).
	// Without it Main builds one.
	EnvFailpoints = "DELEGATED_IPAM_TEST_FAILPOINTS"

	module = "github.com/delegated-ipam/delegated-ipam"
)

// Main runs a test package whose tests need the binaries: call it from
// TestMain. It builds those that the environment does not name, once for the
// process, and removes them again. It does not return.
func Main(m *testing.M) {
	becomeScript()
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

// Failpoints returns the path of the binary with failpoints.
func Failpoints(t testing.TB) string {
	t.Helper()
	return fromEnv(t, EnvFailpoints)
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

// built is a binary, or a folder of them, that a variable names and that is
// built if it does not.
type built struct {
	variable string
	// name is what it is called among the built ones; a folder ends in "/".
	name string
	// in is the folder of the module, below that of the main one, and of what.
	in, of string
	// tags are build tags, separated by commas.
	tags string
}

func buildMissing(dir string) error {
	root, err := moduleRoot()
	if err != nil {
		return err
	}
	for _, b := range []built{
		{EnvBinary, "delegated-ipam", ".", "./cmd/delegated-ipam", ""},
		{EnvPlugins, "plugins/", "tools/plugins", "tool", ""},
		{EnvOldPlugins, "plugins-v1.4/", "tools/plugins-v1.4", "tool", ""},
		{EnvScripted, "scripted", ".", "./test/scripted", ""},
		{EnvFailpoints, "delegated-ipam-failpoints", ".", "./cmd/delegated-ipam", "failpoints"},
	} {
		if err := b.buildUnlessNamed(dir, root); err != nil {
			return err
		}
	}
	return nil
}

// buildUnlessNamed sets the variable to what it has built.
func (b built) buildUnlessNamed(dir, root string) error {
	if os.Getenv(b.variable) != "" {
		return nil
	}
	result := filepath.Join(dir, b.name)
	if strings.HasSuffix(b.name, "/") {
		if err := os.Mkdir(result, 0o755); err != nil {
			return err
		}
	}
	cmd := exec.Command("go", "build", "-buildvcs=false", "-tags="+b.tags, "-o", result, b.of)
	cmd.Dir = filepath.Join(root, b.in)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s in %s: %w\n%s", cmd, cmd.Dir, err, out)
	}
	return os.Setenv(b.variable, result)
}
