package call

import (
	"bytes"
	"encoding/json"
)

// Network is one CNI network configuration whose plugin chain delegates IPAM.
type Network struct {
	// Name is the network's name (CNI spec section 1, "name").
	Name string
	// CNIVersion is the highest version in the file that libcni supports; empty if the file names
	// none. Calls use the highest version that the sidecar and the plugin both support instead
	// (docs/reference/plugins.md, CNI versions).
	CNIVersion string
	// File is the path of the file from which it was read.
	File string
	// Shared reports that the file is in a ConfigMap volume, so that every node of the cluster has
	// the same one.
	Shared bool
	// PluginConfig is the plugin object whose "ipam" delegates, unchanged.
	PluginConfig json.RawMessage
	// IPAMType is the type of the IPAM plugin, such as "host-local".
	IPAMType string
	// DisableCheck and DisableGC turn off CHECK and GC for this network (CNI spec section 1).
	DisableCheck, DisableGC bool
}

// Equal reports whether two networks are equal in every field.
func (n Network) Equal(o Network) bool {
	return n.Name == o.Name && n.CNIVersion == o.CNIVersion && n.File == o.File && n.Shared == o.Shared && n.IPAMType == o.IPAMType &&
		n.DisableCheck == o.DisableCheck && n.DisableGC == o.DisableGC && bytes.Equal(n.PluginConfig, o.PluginConfig)
}
