package harness

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/test/oracle"
)

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

// InstallCentral puts a central plugin into the node, with a profile of its own that
// every sidecar of the node is given: an ADD or a DEL may act for so
// many seconds after its process, also across a reboot of the node. Facts replace
// those of the profile, and quirks are added to the network's ipam section.
func (n *Node) InstallCentral(t testing.TB, outlivesSeconds int, facts, quirks map[string]any) Central {
	t.Helper()
	profile := map[string]any{
		"type": centralType, "repeatedAdd": "refused", "verifyBy": "check", "checkProves": "presence",
		"lost":               map[string]any{"codes": []int{999}, "message": "Failed to find address"},
		"addOutlivesSeconds": outlivesSeconds, "delOutlivesSeconds": outlivesSeconds,
		"del": "released", "store": "remote", "lookup": "none",
		"requests": []string{"CNI_ARGS"}, "requestForm": "address", "podIdentity": "none",
		"namespace": "any", "unique": true, "sources": []string{"test/scripted"},
	}
	maps.Copy(profile, facts)
	data, err := json.Marshal(profile)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(n.Dir, "central.json")
	if err := os.WriteFile(file, data, 0o644); err != nil {
		t.Fatal(err)
	}
	n.Flags = append(n.Flags, "--plugin-profile="+file, "--enable-ipv6=false")

	c := Central{Scripted: n.InstallScripted(t, centralType)}
	section := map[string]any{"subnet": "10.15.0.0/24"}
	maps.Copy(section, quirks)
	c.Network = Network{Name: "pods", CNIVersion: "1.0.0", Plugin: centralType, IPAM: section}
	n.WriteNetwork(t, "05-cilium", c.Network)
	n.Store = func() ([]oracle.Lease, error) { return c.LeasesByStableID(c.Network.Name) }
	c.Pods = n.PodsOf(t, c.Network)
	return c
}

// suffix is what an ID ends in that is used after a DEL which may act late
// (docs/how-it-works.md, Identity).
var suffix = regexp.MustCompile(`^(cilium-agent-.*[0-9a-f]{16})-[gu][0-9a-f]+$`)

// StableID is the container ID that the list names an attachment by, given the one
// that its plugin is called with.
func StableID(containerID string) string {
	if m := suffix.FindStringSubmatch(containerID); m != nil {
		return m[1]
	}
	return containerID
}

// LeasesByStableID is Leases with the container IDs of the list.
func (s Scripted) LeasesByStableID(network string) ([]oracle.Lease, error) {
	leases, err := s.Leases(network)
	for i := range leases {
		leases[i].ContainerID = StableID(leases[i].ContainerID)
	}
	return leases, err
}

// ScriptOf is Script for the calls of one owner only, named as its container ID has it.
func (s Scripted) ScriptOf(t testing.TB, verb, owner, script string) {
	t.Helper()
	s.put(t, scriptOf(verb, owner), script)
}

// UnscriptOf lets a verb work again for an owner.
func (s Scripted) UnscriptOf(t testing.TB, verb, owner string) {
	t.Helper()
	for _, suffix := range []string{".json", ".count"} {
		file := filepath.Join(s.dir, strings.TrimSuffix(scriptOf(verb, owner), ".json")+suffix)
		if err := os.Remove(file); err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
	}
}

func scriptOf(verb, owner string) string { return strings.ToLower(verb) + "." + owner + ".json" }

// Late is how many calls the server has accepted and not carried out yet.
func (s Scripted) Late(t testing.TB) int {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(s.dir, "late"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return len(entries)
}

// AwaitLate waits until the server has accepted so many calls that are not carried out.
func (s Scripted) AwaitLate(t testing.TB, want int) {
	t.Helper()
	Eventually(t, fmt.Sprintf("%d late calls", want), func() error {
		if got := s.Late(t); got != want {
			return fmt.Errorf("there are %d", got)
		}
		return nil
	})
}

// Replay carries out the late calls of the named owners, or all of them.
func (s Scripted) Replay(t testing.TB, owners ...string) {
	t.Helper()
	out, err := exec.Command(strings.TrimSuffix(s.dir, ".d"), append([]string{"replay"}, owners...)...).CombinedOutput()
	if err != nil {
		t.Fatalf("replay: %v\n%s", err, out)
	}
	if len(out) > 0 {
		t.Logf("replay: %s", out)
	}
}
