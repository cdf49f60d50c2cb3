package e2e

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	plugincall "github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

// inStateDir reports whether a file of the state directory has a text.
func inStateDir(t *testing.T, n *harness.Node, text string) (found bool) {
	t.Helper()
	check.Must(t, filepath.Walk(n.StateDir, func(path string, info os.FileInfo, err error) error {
		if err != nil || !info.Mode().IsRegular() {
			return err
		}
		data, err := os.ReadFile(path)
		found = found || bytes.Contains(data, []byte(text))
		return err
	}))
	return found
}

// A plugin that declares the capability gets the annotations of a pod at ADD. No other verb needs them, so
// they are not recorded.
func TestPodAnnotations(t *testing.T) {
	t.Parallel()
	n := harness.NewNode(t)
	plugin := n.InstallScripted(t, "central")
	ipam := ranges()
	ipam["type"] = "central"
	pods := n.PodsThrough(t, "10-pods", harness.Network{Name: "pods", CNIVersion: "1.1.0", Plugin: "central", IPAM: ipam})
	n.Start(t, "--enable-ipv6=false")
	annotations := strings.Repeat("a", 512<<10)
	keys := map[string]any{"runtimeConfig": map[string]any{
		plugincall.KeyPodAnnotations: map[string]string{"example.com/text": annotations}, "portMappings": []any{},
	}}
	_, err := pods.Call("ADD", "0123abcd", keys)
	check.Must(t, err)
	if inStateDir(t, n, annotations[:1<<10]) {
		t.Error("the journal has the annotations")
	}
	call(t, pods, "CHECK", "0123abcd")
	call(t, pods, "DEL", "0123abcd")
	_, err = pods.Call("DEL", "never-added", keys)
	check.Must(t, err)
	for _, c := range plugin.Calls(t) {
		if c.Verb == "VERSION" || c.Verb == "STATUS" {
			continue
		}
		if got := bytes.Contains(c.Stdin, []byte(annotations)); got != (c.Verb == "ADD") {
			t.Errorf("%s: got the annotations: %t", c.Verb, got)
		}
		if !bytes.Contains(c.Stdin, []byte("portMappings")) && c.Verb == "ADD" {
			t.Errorf("%s had not the rest of runtimeConfig: %.200s", c.Verb, c.Stdin)
		}
	}
}

// Calls that other runtimes and plugins make, and that the specification allows.
func TestPodOddCalls(t *testing.T) {
	t.Parallel()
	n, pods := podNode(t)
	s := n.Start(t)
	long := strings.Repeat("0123456789abcdef", 16)[:255]
	first := pods.Add(t, long)
	wantAddresses(t, pods.Add(t, long), first)
	wantIDs(t, n, long)
	// multus up to v4.3, with its older version.
	section := map[string]any{"ipam": map[string]any{"type": "delegated-ipam-cni", "socket": n.Socket}, "cniVersion": "0.3.0"}
	_, err := pods.Call("DEL", long, section)
	check.Must(t, err)
	wantIDs(t, n)
	out, err := pods.Call("ADD", "old-version", map[string]any{"cniVersion": "0.3.0"})
	check.Must(t, err)
	if !bytes.Contains(out, []byte(`"cniVersion": "0.3.0"`)) {
		t.Errorf("ADD returned %s; want version 0.3.0", out)
	}
	// CRI-O at its start on a node without pods.
	s.AllocateFor(t, "router")
	_, err = pods.Call("GC", "", map[string]any{"cni.dev/valid-attachments": nil})
	check.Must(t, err)
	if left := n.Leases(t); len(left) != 2 {
		t.Errorf("the store has %v; want the router's leases", left)
	}
	if _, err := pods.Call("GC", "", nil); err == nil || !strings.Contains(err.Error(), "no list of attachments") {
		t.Errorf("GC without a list: %v", err)
	}
}
