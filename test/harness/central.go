package harness

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
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

// InstallCentral adds a network of a central plugin to the node, and its profile to the
// flags of every sidecar: an ADD or a DEL may act for outlivesSeconds after its process
// has ended, even across a reboot of the node. Facts override those of the profile, and
// quirks are added to the network's ipam section.
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
	Must(t, err)
	file := filepath.Join(n.Dir, "central.json")
	Must(t, os.WriteFile(file, data, 0o644))
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
	n.Store = func() ([]oracle.Lease, error) { return c.LeasesByStableID(c.Network.Name) }
	c.Pods = n.PodsOf(t, c.Network)
	return c
}
