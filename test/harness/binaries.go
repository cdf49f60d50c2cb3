// Package harness runs the real binary with real and scripted IPAM plugins for black-box
// tests: over the socket, through the command line, and in the state folders of both.
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
	// EnvBinary names the delegated-ipam binary under test. If it is not set, Main builds one.
	EnvBinary = "DELEGATED_IPAM_TEST_BIN"
	// EnvPlugins names a folder with the real host-local and static. If it is not set, Main
	// builds the version that tools/plugins/go.mod pins.
	EnvPlugins = "DELEGATED_IPAM_TEST_PLUGINS"
	// EnvOldPlugins names a folder with the host-local of plugins v1.4.0, which supports CNI
	// versions up to 1.0.0. If it is not set, Main builds it.
	EnvOldPlugins = "DELEGATED_IPAM_TEST_OLD_PLUGINS"
	// EnvScripted names the scripted plugin. If it is not set, Main builds it.
	EnvScripted = "DELEGATED_IPAM_TEST_SCRIPTED"
	// EnvFailpoints names the delegated-ipam binary with failpoints (pkg/failpoint). If it is
	// not set, Main builds one.
	EnvFailpoints = "DELEGATED_IPAM_TEST_FAILPOINTS"

	module = "github.com/delegated-ipam/delegated-ipam"
)

// Main runs a test package whose tests need the binaries: call it from TestMain. It builds the
// binaries that the environment does not name, and removes them afterwards. It does not return.
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

// artifact is a binary, or a folder of binaries, that is built unless a variable names it.
type artifact struct {
	env string
	// name is its file name; that of a folder ends in "/".
	name string
	// dir is the folder of the module, relative to the main one, and pkg the package in it.
	dir, pkg string
	// tags are build tags, separated by commas.
	tags string
}

func buildMissing(dir string) error {
	root, err := moduleRoot()
	if err != nil {
		return err
	}
	for _, a := range []artifact{
		{EnvBinary, "delegated-ipam", ".", "./cmd/delegated-ipam", ""},
		{EnvPlugins, "plugins/", "tools/plugins", "tool", ""},
		{EnvOldPlugins, "plugins-v1.4/", "tools/plugins-v1.4", "tool", ""},
		{EnvScripted, "scripted", ".", "./test/scripted", ""},
		{EnvFailpoints, "delegated-ipam-failpoints", ".", "./cmd/delegated-ipam", "failpoints"},
	} {
		if err := a.build(dir, root); err != nil {
			return err
		}
	}
	return nil
}

// build builds the artifact into dir and sets the variable to its path.
func (a artifact) build(dir, root string) error {
	if os.Getenv(a.env) != "" {
		return nil
	}
	result := filepath.Join(dir, a.name)
	if strings.HasSuffix(a.name, "/") {
		if err := os.Mkdir(result, 0o755); err != nil {
			return err
		}
	}
	cmd := exec.Command("go", "build", "-buildvcs=false", "-tags="+a.tags, "-o", result, a.pkg)
	cmd.Dir = filepath.Join(root, a.dir)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s in %s: %w\n%s", cmd, cmd.Dir, err, out)
	}
	return os.Setenv(a.env, result)
}
