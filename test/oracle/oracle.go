// Package oracle tells whether the sidecar's word and the plugin's own store
// agree. It is the last question of every end-to-end test: an address that only
// one side knows is either leaked or about to be handed out twice.
package oracle

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
)

// Lease is one address that somebody says is taken, and by whom.
type Lease struct {
	// Network is the name of the CNI network configuration.
	Network string
	IP      netip.Addr
	// ContainerID and Interface are CNI_CONTAINERID and CNI_IFNAME of the ADD.
	ContainerID string
	Interface   string
}

// Compare returns nil if the plugin's store and the sidecar's list hold exactly
// the same leases, each once. Else the error names every lease that only one
// of them has, or that one of them has twice.
func Compare(plugin, listed []Lease) error {
	var errs []error
	errs = append(errs, repeated("the plugin's store", plugin)...)
	errs = append(errs, repeated("the sidecar's list", listed)...)
	for _, l := range plugin {
		if !slices.Contains(listed, l) {
			errs = append(errs, fmt.Errorf("only the plugin's store has %s", l))
		}
	}
	for _, l := range listed {
		if !slices.Contains(plugin, l) {
			errs = append(errs, fmt.Errorf("only the sidecar's list has %s", l))
		}
	}
	return errors.Join(errs...)
}

// String names the lease as an error shows it.
func (l Lease) String() string {
	return fmt.Sprintf("%s in network %q of container ID %q, interface %q", l.IP, l.Network, l.ContainerID, l.Interface)
}

// repeated returns one error for each address that is there more than once.
func repeated(where string, leases []Lease) []error {
	type key struct {
		network string
		ip      netip.Addr
	}
	var errs []error
	seen := map[key]Lease{}
	for _, l := range leases {
		k := key{l.Network, l.IP}
		if first, ok := seen[k]; ok {
			errs = append(errs, fmt.Errorf("%s has an address twice: %s, and %s", where, first, l))
		}
		seen[k] = l
	}
	return errs
}
