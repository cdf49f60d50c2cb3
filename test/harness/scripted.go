package harness

import (
	"errors"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Scripted is the scripted plugin (test/scripted) of a node.
type Scripted struct {
	// dir is its script folder.
	dir string
}

// InstallScripted puts the scripted plugin into BinDir under the name of a
// plugin type, whose quirks it imitates then. Its store is none that the list
// is compared with: that is named by what each type is keyed by.
func (n *Node) InstallScripted(t testing.TB, pluginType string) Scripted {
	t.Helper()
	path := filepath.Join(n.BinDir, pluginType)
	s := Scripted{dir: path + ".d"}
	err := errors.Join(os.Symlink(fromEnv(t, EnvScripted), path), os.MkdirAll(filepath.Join(s.dir, "store"), 0o755))
	if err != nil {
		t.Fatal(err)
	}
	n.Store = nil
	return s
}

// Script tells how a verb misbehaves from now on (type script of test/scripted).
func (s Scripted) Script(t testing.TB, verb, script string) {
	t.Helper()
	s.put(t, strings.ToLower(verb)+".json", script)
}

// Unscript lets a verb work again.
func (s Scripted) Unscript(t testing.TB, verb string) {
	t.Helper()
	s.remove(t, strings.ToLower(verb)+".json")
}

// StopDaemon stops what stands behind the plugin, StartDaemon starts it again.
func (s Scripted) StopDaemon(t testing.TB) {
	t.Helper()
	s.put(t, "daemon-down", "")
}

// StartDaemon undoes StopDaemon.
func (s Scripted) StartDaemon(t testing.TB) {
	t.Helper()
	s.remove(t, "daemon-down")
}

// Queued is how many DELs wait for the daemon.
func (s Scripted) Queued(t testing.TB) int {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(s.dir, "queue"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return len(entries)
}

// Calls is how often a verb was called.
func (s Scripted) Calls(t testing.TB, verb string) int {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(s.dir, "calls.log"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return strings.Count(string(data), `{"verb":"`+verb+`"`)
}

// Holds returns the addresses that the plugin holds, in order.
func (s Scripted) Holds(t testing.TB) []string {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(s.dir, "store"))
	if err != nil {
		t.Fatal(err)
	}
	var ips []netip.Addr
	for _, e := range entries {
		ips = append(ips, netip.MustParseAddr(e.Name()))
	}
	slices.SortFunc(ips, netip.Addr.Compare)
	var texts []string
	for _, ip := range ips {
		texts = append(texts, ip.String())
	}
	return texts
}

// put writes a file in one step: the plugin may read it at any time.
func (s Scripted) put(t testing.TB, name, content string) {
	t.Helper()
	path := filepath.Join(s.dir, name)
	if err := errors.Join(os.WriteFile(path+".new", []byte(content), 0o644), os.Rename(path+".new", path)); err != nil {
		t.Fatal(err)
	}
}

func (s Scripted) remove(t testing.TB, name string) {
	t.Helper()
	if err := os.Remove(filepath.Join(s.dir, name)); err != nil {
		t.Fatal(err)
	}
}
