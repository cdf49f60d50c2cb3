package harness

import (
	"encoding/json"
	"errors"
	"io/fs"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/test/oracle"
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

// Open opens the gate of a script, or ends the child that one has left.
func (s Scripted) Open(t testing.TB, gate string) {
	t.Helper()
	s.put(t, gate, "")
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

// Reconcile frees every address that names a pod which is none of living, each
// "namespace/name": what whereabouts' ip-reconciler does and calico's controllers do.
func (s Scripted) Reconcile(t testing.TB, living ...string) {
	t.Helper()
	s.put(t, "living-pods", strings.Join(living, "\n"))
	if out, err := exec.Command(strings.TrimSuffix(s.dir, ".d"), "reconcile").CombinedOutput(); err != nil {
		t.Fatalf("reconcile: %v\n%s", err, out)
	}
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

// Heard tells whether a text was in the environment or the configuration of any call.
func (s Scripted) Heard(t testing.TB, text string) bool {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(s.dir, "calls.log"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return strings.Contains(string(data), text)
}

// Verbs returns every verb that was called, oldest first.
func (s Scripted) Verbs(t testing.TB) []string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(s.dir, "calls.log"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	var verbs []string
	for line := range strings.Lines(string(data)) {
		var call struct{ Verb string }
		if err := json.Unmarshal([]byte(line), &call); err != nil {
			t.Fatal(err)
		}
		verbs = append(verbs, call.Verb)
	}
	return verbs
}

// Lose loses everything that the plugin holds.
func (s Scripted) Lose(t testing.TB) {
	t.Helper()
	for _, ip := range s.Holds(t) {
		s.remove(t, filepath.Join("store", ip))
	}
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

// Leases returns what the plugin holds for whom, as long as it is keyed by
// container ID and interface, which is what it does without quirks. Its store
// has no networks: all is of the one that is named.
func (s Scripted) Leases(network string) ([]oracle.Lease, error) {
	entries, err := os.ReadDir(filepath.Join(s.dir, "store"))
	if err != nil {
		return nil, err
	}
	var leases []oracle.Lease
	for _, e := range entries {
		data, err := os.ReadFile(filepath.Join(s.dir, "store", e.Name()))
		if errors.Is(err, fs.ErrNotExist) {
			continue // freed since the folder was read
		}
		ip, errIP := netip.ParseAddr(e.Name())
		if err = errors.Join(err, errIP); err != nil {
			return nil, err
		}
		l := oracle.Lease{Network: network, IP: ip}
		l.ContainerID, l.Interface, _ = strings.Cut(string(data), "\n")
		leases = append(leases, l)
	}
	return leases, nil
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
