package call

import "encoding/json"

// Network is the part of a CNI network configuration that delegates IPAM: what a new
// Invocation is made from.
type Network struct {
	// Name is the network's name.
	Name string
	// File is the path of the configuration file; for errors only.
	File string
	// Shared reports that every node of the cluster has the same file.
	Shared bool
	// CNIVersion is the configuration's own. Calls use the highest version that the
	// sidecar and the plugin both support instead (docs/reference/plugins.md, CNI versions).
	CNIVersion string
	// PluginConfig is the plugin object of the list that has the ipam section.
	PluginConfig json.RawMessage
	// DisableCheck is the list's disableCheck.
	DisableCheck bool
}
