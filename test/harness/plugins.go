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

// InstallOldHostLocal puts the host-local of plugins v1.4.0 in the place of the
// present one.
func (n *Node) InstallOldHostLocal(t testing.TB) {
	t.Helper()
	n.install(t, EnvOldPlugins, "host-local")
}

// InstallScript puts an executable of that name into BinDir: a plugin whose
// answers the test decides.
func (n *Node) InstallScript(t testing.TB, name, script string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(n.BinDir, name), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
}

// InstallELFScript is InstallScript with an ELF binary that becomes the script, because
// the sidecar starts no script ahead of its call. Inside it $0 is the plugin's path.
func (n *Node) InstallELFScript(t testing.TB, name, script string) {
	t.Helper()
	path := filepath.Join(n.BinDir, name)
	self, err := os.Executable()
	if err == nil {
		err = errors.Join(os.WriteFile(path+scriptSuffix, []byte(script), 0o600), os.Symlink(self, path))
	}
	if err != nil {
		t.Fatal(err)
	}
}

// scriptSuffix is that of the script beside an ELF binary that becomes it.
const scriptSuffix = ".becomes"

// becomeScript is for the test binary that InstallELFScript has put in a plugin's place.
// Where it returns there is no script.
func becomeScript() {
	script, err := os.ReadFile(os.Args[0] + scriptSuffix)
	if err != nil {
		return
	}
	err = syscall.Exec("/bin/sh", []string{"sh", "-c", string(script), os.Args[0]}, os.Environ())
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// install copies a plugin, because one that is reached through a symbolic link
// is not what a machine has in /opt/cni/bin.
func (n *Node) install(t testing.TB, variable, name string) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(fromEnv(t, variable), name))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(n.BinDir, name)
	if err := os.WriteFile(path+".new", data, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}
