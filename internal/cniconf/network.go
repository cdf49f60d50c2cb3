// Package cniconf finds, reads and watches the CNI network configurations of the pools. It
// chooses among the files as a container runtime does.
package cniconf

import (
	"bytes"
	"encoding/json"
	"time"
)

// Network is one CNI network configuration whose plugin chain delegates IPAM.
type Network struct {
	// Name is the network's name (CNI spec section 1, "name").
	Name string
	// CNIVersion is the highest version in the file that libcni supports; empty if the
	// file names none.
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
	// DisableCheck and DisableGC turn off CHECK and GC for this network (CNI spec
	// section 1).
	DisableCheck bool
	DisableGC    bool
}

// Equal reports whether two networks are equal in every field.
func (n Network) Equal(o Network) bool {
	return n.Name == o.Name && n.CNIVersion == o.CNIVersion && n.File == o.File && n.Shared == o.Shared && n.IPAMType == o.IPAMType &&
		n.DisableCheck == o.DisableCheck && n.DisableGC == o.DisableGC && bytes.Equal(n.PluginConfig, o.PluginConfig)
}

// Status is the status of a pool's configuration.
type Status struct {
	// Network is the name of the network in use; empty if there is none.
	Network string
	// File is the path of the file from which it was read.
	File string
	// Err is why the pool has no network or, with a network in use, why the files that
	// exist now do not replace it; nil without an error.
	Err error
	// Since is when one of the fields above last changed.
	Since time.Time
}
