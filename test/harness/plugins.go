package harness

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// InstallPlugin puts a real plugin into BinDir.
func (n *Node) InstallPlugin(t testing.TB, name string) {
	t.Helper()
	n.install(t, EnvPlugins, name)
}

// InstallOldHostLocal replaces host-local with that of plugins v1.4.0.
func (n *Node) InstallOldHostLocal(t testing.TB) {
	t.Helper()
	n.install(t, EnvOldPlugins, "host-local")
}

// InstallScript puts an executable script into BinDir as a plugin.
func (n *Node) InstallScript(t testing.TB, name, script string) {
	t.Helper()
	Must(t, os.WriteFile(filepath.Join(n.BinDir, name), []byte(script), 0o755))
}

// InstallELFScript is InstallScript with an ELF binary that executes the script, because
// the sidecar prestarts ELF binaries only. In the script $0 is the plugin's path.
func (n *Node) InstallELFScript(t testing.TB, name, script string) {
	t.Helper()
	path := filepath.Join(n.BinDir, name)
	self, err := os.Executable()
	if err == nil {
		err = errors.Join(os.WriteFile(path+scriptSuffix, []byte(script), 0o600), os.Symlink(self, path))
	}
	Must(t, err)
}

// WrapPlugin renames a plugin to NAME.real, installs a script in its place and returns the
// script's path, which is $0 in the script.
func (n *Node) WrapPlugin(t testing.TB, name, script string) string {
	t.Helper()
	n.renameToReal(t, name)
	n.InstallScript(t, name, script)
	return filepath.Join(n.BinDir, name)
}

// WrapPluginELF is WrapPlugin with InstallELFScript.
func (n *Node) WrapPluginELF(t testing.TB, name, script string) string {
	t.Helper()
	n.renameToReal(t, name)
	n.InstallELFScript(t, name, script)
	return filepath.Join(n.BinDir, name)
}

func (n *Node) renameToReal(t testing.TB, name string) {
	t.Helper()
	plugin := filepath.Join(n.BinDir, name)
	Must(t, os.Rename(plugin, plugin+".real"))
}

// scriptSuffix is appended to the name of a plugin's binary for the script that it executes.
const scriptSuffix = ".becomes"

// becomeScript executes the script of a test binary that InstallELFScript has installed as a
// plugin. It returns if there is no script.
func becomeScript() {
	script, err := os.ReadFile(os.Args[0] + scriptSuffix)
	if err != nil {
		return
	}
	err = syscall.Exec("/bin/sh", []string{"sh", "-c", string(script), os.Args[0]}, os.Environ())
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// install copies a plugin instead of linking it: /opt/cni/bin has regular files.
func (n *Node) install(t testing.TB, variable, name string) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(fromEnv(t, variable), name))
	Must(t, err)
	path := filepath.Join(n.BinDir, name)
	Must(t, os.WriteFile(path+".new", data, 0o755))
	Must(t, os.Rename(path+".new", path))
}
