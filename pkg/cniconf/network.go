// Package cniconf finds, reads and watches the CNI network configurations that
// the pools stand for, choosing among the files as a container runtime does.
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
	// CNIVersion is the highest one the file names that this library knows;
	// empty if it names none.
	CNIVersion string
	// File is the path of the file it was read from.
	File string
	// PluginConfig is the plugin object whose "ipam" delegates, with every key
	// of the file and nothing added.
	PluginConfig json.RawMessage
	// IPAMType is the type of the IPAM plugin, such as "host-local".
	IPAMType string
	// DisableCheck and DisableGC are the file's: no CHECK, no GC for this network
	// (CNI spec section 1).
	DisableCheck bool
	DisableGC    bool
}

// Equal tells whether two networks are the same in everything that is told of them.
func (n Network) Equal(o Network) bool {
	return n.Name == o.Name && n.CNIVersion == o.CNIVersion && n.File == o.File && n.IPAMType == o.IPAMType &&
		n.DisableCheck == o.DisableCheck && n.DisableGC == o.DisableGC && bytes.Equal(n.PluginConfig, o.PluginConfig)
}

// Status is how it stands with a pool's configuration.
type Status struct {
	// Network is the name of the network in use; empty if there is none.
	Network string
	// File is the path it was read from.
	File string
	// Err is the trouble there is now; with a network in use, why that one is
	// kept and not replaced. Nil if there is none.
	Err error
	// Since is when the three above came to be as they are.
	Since time.Time
}
