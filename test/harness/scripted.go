package harness

import (
	"encoding/json"
	"errors"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
	"github.com/delegated-ipam/delegated-ipam/test/oracle"
)

// Scripted is the scripted plugin (test/scripted) of a node.
type Scripted struct {
	// dir is its script directory.
	dir string
}

// InstallScripted puts the scripted plugin into BinDir under the name of a plugin type, whose quirks it
// imitates. Node.Store becomes nil: what an entry of its store is keyed by depends on the plugin type.
func (n *Node) InstallScripted(t testing.TB, pluginType string) Scripted {
	t.Helper()
	path := filepath.Join(n.BinDir, pluginType)
	s := Scripted{dir: path + ".d"}
	check.Must(t, errors.Join(os.Symlink(fromEnv(t, EnvScripted), path), os.MkdirAll(filepath.Join(s.dir, "store"), 0o755), os.Mkdir(filepath.Join(s.dir, "queue"), 0o755)))
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
	return strings.TrimSuffix(strings.ToLower(verb)+"."+owner, ".") + ".json"
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
	check.Must(t, errors.Join(os.WriteFile(path+".new", []byte(content), 0o644), os.Rename(path+".new", path)))
}

func (s Scripted) remove(t testing.TB, name string) {
	t.Helper()
	check.Must(t, os.Remove(filepath.Join(s.dir, name)))
}

// centralType is the plugin type of a central server that no built-in profile knows.
const centralType = "central-ipam"

// Central is an IPAM server off the node, behind the scripted plugin.
type Central struct {
	Scripted
	// Network is the network that it serves.
	Network Network
	// Pods are the network's pods.
	Pods Pods
}

// InstallCentral adds a network of a central plugin to the node, and its profile to the
// flags of every daemon: an ADD or a DEL may act for outlivesSeconds after its process
// has ended, even across a reboot of the node. Facts override the facts of the profile, and
// quirks are added to the network's ipam section.
func (n *Node) InstallCentral(t testing.TB, outlivesSeconds int, facts, quirks map[string]any) Central {
	t.Helper()
	profile := map[string]any{
		"type": centralType, "repeatedAdd": "refused", "verifyBy": "check", "checkProves": "presence",
		"lost":               map[string]any{"codes": []int{999}, "message": "Failed to find address"},
		"addOutlivesSeconds": outlivesSeconds,
		"del":                "released", "store": "remote", "lookup": "none",
		"requests": []string{"CNI_ARGS"}, "requestForm": "address", "podIdentity": "none",
		"namespace": "any", "unique": true, "sources": []string{"test/scripted"},
	}
	maps.Copy(profile, facts)
	data, err := json.Marshal(profile)
	check.Must(t, err)
	file := filepath.Join(n.Dir, "central.json")
	check.Must(t, os.WriteFile(file, data, 0o644))
	n.Flags = append(n.Flags, "--plugin-profile="+file)
	return n.InstallServer(t, centralType, quirks)
}

// InstallServer adds an IPv4 network of the scripted plugin under the name of a plugin type
// whose store is keyed by container ID and interface, with quirks in its ipam section.
func (n *Node) InstallServer(t testing.TB, pluginType string, quirks map[string]any) Central {
	t.Helper()
	section := map[string]any{"subnet": "10.15.0.0/24"}
	maps.Copy(section, quirks)
	c := Central{
		Scripted: n.InstallScripted(t, pluginType),
		Network:  Network{Name: "pods", CNIVersion: "1.0.0", Plugin: pluginType, IPAM: section},
	}
	n.Flags = append(n.Flags, "--enable-ipv6=false")
	n.WriteNetwork(t, "05-cilium", c.Network)
	n.Store = func() ([]oracle.Lease, error) { return c.Leases(c.Network.Name) }
	c.Pods = n.PodsOf(t, c.Network)
	return c
}
