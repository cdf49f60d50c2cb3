// Package harness runs the real binary with real and scripted IPAM plugins for black-box
// tests: over the socket, through the command line, and in the state directories of both.
package harness

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
)

// Environment variables that name what a test needs. Main builds what is not named.
const (
	// EnvBinary names the delegated-ipam binary under test.
	EnvBinary = "DELEGATED_IPAM_TEST_BIN"
	// EnvPlugins names a directory with the real plugins, in the version that tools/plugins/go.mod pins.
	EnvPlugins = "DELEGATED_IPAM_TEST_PLUGINS"
	// EnvOldPlugins names a directory with one for each older version of the plugins (OldPlugins).
	EnvOldPlugins = "DELEGATED_IPAM_TEST_OLD_PLUGINS"
	// EnvScripted names the scripted plugin.
	EnvScripted = "DELEGATED_IPAM_TEST_SCRIPTED"
	// EnvCNI names the CNI plugin delegated-ipam-cni.
	EnvCNI = "DELEGATED_IPAM_TEST_CNI"
	// EnvFailpoints names the delegated-ipam binary with failpoints (internal/failpoint).
	EnvFailpoints = "DELEGATED_IPAM_TEST_FAILPOINTS"

	// PluginsV19, PluginsV14 and PluginsV10 are the older versions of the plugins, for OldPlugins: host-local and dhcp of
	// v1.9.1, host-local of v1.4.0, which has CNI versions up to 1.0.0, and of v1.0.1.
	PluginsV19 = "v1.9"
	PluginsV14 = "v1.4"
	PluginsV10 = "v1.0"

	module = "github.com/delegated-ipam/delegated-ipam"
)

// Main runs a test package whose tests need the binaries: call it from TestMain. It does not return.
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

// Failpoints returns the path of the binary with failpoints.
func Failpoints(t testing.TB) string {
	t.Helper()
	return fromEnv(t, EnvFailpoints)
}

// OldPlugins returns the directory of an older version of the plugins.
func OldPlugins(t testing.TB, version string) string {
	t.Helper()
	return filepath.Join(fromEnv(t, EnvOldPlugins), version)
}

func fromEnv(t testing.TB, name string) string {
	t.Helper()
	path := os.Getenv(name)
	if path == "" {
		t.Fatalf("$%s is empty; call harness.Main from TestMain", name)
	}
	return path
}

// artifact is a binary, or a directory of binaries, that is built unless a variable names it.
type artifact struct {
	env string
	// name is its file name; the name of a directory ends in "/".
	name string
	// dir is the directory of the module, relative to the main one, and pkg the package in it.
	dir, pkg, tags string
}

func buildMissing(dir string) error {
	root, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", module).Output()
	if err != nil {
		return fmt.Errorf("go list -m %s: %w", module, err)
	}
	for _, a := range []artifact{
		{EnvBinary, "delegated-ipam", ".", "./cmd/delegated-ipam", ""},
		{EnvPlugins, "plugins/", "tools/plugins", "tool", ""},
		{EnvScripted, "scripted", ".", "./test/scripted", ""},
		{EnvCNI, "delegated-ipam-cni", ".", "./cmd/delegated-ipam-cni", ""},
		{EnvFailpoints, "delegated-ipam-failpoints", ".", "./cmd/delegated-ipam", "failpoints"},
	} {
		if err := a.build(dir, strings.TrimSpace(string(root))); err != nil {
			return err
		}
	}
	return buildOldPlugins(dir, strings.TrimSpace(string(root)))
}

// buildOldPlugins builds the older versions unless a variable names their directory.
func buildOldPlugins(dir, root string) error {
	if os.Getenv(EnvOldPlugins) != "" {
		return nil
	}
	for _, version := range []string{PluginsV19, PluginsV14, PluginsV10} {
		a := artifact{"", version + "/", "tools/plugins-" + version, "tool", ""}
		if err := a.build(dir, root); err != nil {
			return err
		}
	}
	return os.Setenv(EnvOldPlugins, dir)
}

// build builds the artifact into dir and sets the variable, if there is one, to its path.
func (a artifact) build(dir, root string) error {
	if a.env != "" && os.Getenv(a.env) != "" {
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
	if a.env == "" {
		return nil
	}
	return os.Setenv(a.env, result)
}

// InstallPlugin puts a real plugin into BinDir.
func (n *Node) InstallPlugin(t testing.TB, name string) {
	t.Helper()
	n.install(t, filepath.Join(fromEnv(t, EnvPlugins), name))
}

// InstallOldPlugin is InstallPlugin for an older version (PluginsV19).
func (n *Node) InstallOldPlugin(t testing.TB, version, name string) {
	t.Helper()
	n.install(t, filepath.Join(OldPlugins(t, version), name))
}

// InstallScript puts an executable script into BinDir as a plugin.
func (n *Node) InstallScript(t testing.TB, name, script string) {
	t.Helper()
	WriteProgram(t, filepath.Join(n.BinDir, name), []byte(script))
}

// WriteProgram writes an executable file. No process is forked meanwhile: until its exec it would
// have the file open for writing, and executing the file would fail with ETXTBSY (golang/go#22315).
func WriteProgram(t testing.TB, path string, data []byte) {
	t.Helper()
	syscall.ForkLock.RLock()
	err := os.WriteFile(path, data, 0o755)
	syscall.ForkLock.RUnlock()
	check.Must(t, err)
}

// WrapPlugin renames a plugin to NAME.real, installs a script in its place and returns the
// script's path, which is $0 in the script.
func (n *Node) WrapPlugin(t testing.TB, name, script string) string {
	t.Helper()
	path := filepath.Join(n.BinDir, name)
	check.Must(t, os.Rename(path, path+".real"))
	n.InstallScript(t, name, script)
	return path
}

// install copies a plugin instead of linking it: /opt/cni/bin has regular files.
func (n *Node) install(t testing.TB, from string) {
	t.Helper()
	data, err := os.ReadFile(from)
	check.Must(t, err)
	path := filepath.Join(n.BinDir, filepath.Base(from))
	WriteProgram(t, path+".new", data)
	check.Must(t, os.Rename(path+".new", path))
}
