package harness

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"testing"
)

// Network is a CNI network configuration whose chain delegates IPAM.
type Network struct {
	// Name is the network's name.
	Name string
	// Subnets are host-local's ranges, one for each family.
	Subnets []string
	// CNIVersion is the configuration's cniVersion.
	CNIVersion string
	// Plugin is the IPAM plugin's type; empty for host-local.
	Plugin string
	// IPAM overrides keys of the ipam section, or adds them.
	IPAM map[string]any
	// Single writes a single-plugin *.conf instead of a *.conflist.
	Single bool
}

// IPv4Only returns a network with one IPv4 range.
func IPv4Only() Network {
	return Network{Name: "pods", Subnets: []string{"10.15.0.0/24"}, CNIVersion: "0.3.1"}
}

// DualStack returns a network with a range of each family.
func DualStack() Network {
	return Network{Name: "pods", Subnets: []string{"10.15.0.0/24", "fd00:15::/112"}, CNIVersion: "1.0.0"}
}

// WriteNetwork writes a network into ConfDir atomically, as an installer does. The file
// name gets the suffix .conf or .conflist.
func (n *Node) WriteNetwork(t testing.TB, name string, nw Network) {
	t.Helper()
	n.WriteConf(t, name+nw.suffix(), nw.document(t, n.StoreDir))
}

// WriteConf writes a file with any content into ConfDir atomically.
func (n *Node) WriteConf(t testing.TB, file string, data []byte) {
	t.Helper()
	path := filepath.Join(n.ConfDir, file)
	Must(t, os.WriteFile(path+".new", data, 0o644))
	Must(t, os.Rename(path+".new", path))
}

func (nw Network) suffix() string {
	if nw.Single {
		return ".conf"
	}
	return ".conflist"
}

func (nw Network) document(t testing.TB, dataDir string) []byte {
	t.Helper()
	plugin := map[string]any{"type": "cilium-cni", "ipam": nw.ipam(dataDir)}
	document := map[string]any{"cniVersion": nw.CNIVersion, "name": nw.Name, "plugins": []any{plugin}}
	if nw.Single {
		plugin["cniVersion"], plugin["name"] = nw.CNIVersion, nw.Name
		document = plugin
	}
	data, err := json.MarshalIndent(document, "", "  ")
	Must(t, err)
	return data
}

func (nw Network) ipam(dataDir string) map[string]any {
	section := map[string]any{"type": nw.Plugin}
	if nw.Plugin == "" {
		section = hostLocal(dataDir, nw.Subnets)
	}
	maps.Copy(section, nw.IPAM)
	return section
}

func hostLocal(dataDir string, subnets []string) map[string]any {
	var ranges [][]map[string]string
	for _, subnet := range subnets {
		ranges = append(ranges, []map[string]string{{"subnet": subnet}})
	}
	return map[string]any{"type": "host-local", "dataDir": dataDir, "ranges": ranges}
}
