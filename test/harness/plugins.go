package harness

import (
	"os"
	"path/filepath"
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
