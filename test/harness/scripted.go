package harness

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Scripted is the scripted plugin (test/scripted) of a node.
type Scripted struct {
	// dir is its script folder.
	dir string
}

// InstallScripted puts the scripted plugin into BinDir under the name of a plugin type,
// whose quirks it imitates. Node.Store becomes nil: what an entry of its store is keyed by
// depends on the plugin type.
func (n *Node) InstallScripted(t testing.TB, pluginType string) Scripted {
	t.Helper()
	path := filepath.Join(n.BinDir, pluginType)
	s := Scripted{dir: path + ".d"}
	Must(t, errors.Join(os.Symlink(fromEnv(t, EnvScripted), path), os.MkdirAll(filepath.Join(s.dir, "store"), 0o755)))
	n.Store = nil
	return s
}

// SetScript makes a verb misbehave from now on (type script of test/scripted).
func (s Scripted) SetScript(t testing.TB, verb, script string) {
	t.Helper()
	s.write(t, scriptFile(verb, ""), script)
}

// ClearScript makes a verb work again.
func (s Scripted) ClearScript(t testing.TB, verb string) {
	t.Helper()
	s.remove(t, scriptFile(verb, ""))
}

// SetOwnerScript is SetScript for the calls of one owner, named as in its container ID.
func (s Scripted) SetOwnerScript(t testing.TB, verb, owner, script string) {
	t.Helper()
	s.write(t, scriptFile(verb, owner), script)
}

// ClearOwnerScript makes a verb work again for an owner, and resets the count of its calls.
func (s Scripted) ClearOwnerScript(t testing.TB, verb, owner string) {
	t.Helper()
	script := filepath.Join(s.dir, scriptFile(verb, owner))
	for _, file := range []string{script, strings.TrimSuffix(script, ".json") + ".count"} {
		if err := os.Remove(file); err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
	}
}

// scriptFile returns the name of the script of a verb, for one owner or (empty) for all.
func scriptFile(verb, owner string) string {
	if owner != "" {
		owner = "." + owner
	}
	return strings.ToLower(verb) + owner + ".json"
}

// Open creates the file that a script's gate or holdStdout waits for.
func (s Scripted) Open(t testing.TB, gate string) {
	t.Helper()
	s.write(t, gate, "")
}

// StopDaemon stops the daemon behind the plugin, StartDaemon starts it again.
func (s Scripted) StopDaemon(t testing.TB) {
	t.Helper()
	s.write(t, "daemon-down", "")
}

// StartDaemon undoes StopDaemon.
func (s Scripted) StartDaemon(t testing.TB) {
	t.Helper()
	s.remove(t, "daemon-down")
}

// Reconcile frees every address whose pod is not among living, each "namespace/name", as
// whereabouts' ip-reconciler and calico's controllers do.
func (s Scripted) Reconcile(t testing.TB, living ...string) {
	t.Helper()
	s.write(t, "living-pods", strings.Join(living, "\n"))
	s.run(t, "reconcile")
}

// RunLateCalls executes the late calls of the named owners, or all of them.
func (s Scripted) RunLateCalls(t testing.TB, owners ...string) {
	t.Helper()
	s.run(t, append([]string{"replay"}, owners...)...)
}

// run calls the plugin's binary with a command of the tests.
func (s Scripted) run(t testing.TB, args ...string) {
	t.Helper()
	out, err := exec.Command(strings.TrimSuffix(s.dir, ".d"), args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%q: %v\n%s", args, err, out)
	}
	if len(out) > 0 {
		t.Logf("%q: %s", args, out)
	}
}

// write replaces a file atomically: the plugin may read it at any time.
func (s Scripted) write(t testing.TB, name, content string) {
	t.Helper()
	path := filepath.Join(s.dir, name)
	Must(t, errors.Join(os.WriteFile(path+".new", []byte(content), 0o644), os.Rename(path+".new", path)))
}

func (s Scripted) remove(t testing.TB, name string) {
	t.Helper()
	Must(t, os.Remove(filepath.Join(s.dir, name)))
}
