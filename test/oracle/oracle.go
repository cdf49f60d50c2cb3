// Package oracle checks the daemon from outside: whether its list agrees with the plugin's
// store, its journal and the responses that clients got. An address that only one side knows is
// leaked, or will be allocated twice.
package oracle

import (
	"errors"
	"fmt"
	"net/netip"
)

// Lease is an allocated address, as the plugin's store or the daemon's list has it.
type Lease struct {
	// Network is the name of the CNI network configuration.
	Network string
	IP      netip.Addr
	// ContainerID and Interface are CNI_CONTAINERID and CNI_IFNAME of the ADD.
	ContainerID string
	Interface   string
}

// Compare returns nil if the plugin's store and the daemon's list have the same leases, each
// once. Otherwise the error names every lease that only one of them has, or that is twice in
// one.
func Compare(plugin, listed []Lease) error {
	errs := append(duplicates("the plugin's store", plugin), duplicates("the daemon's list", listed)...)
	return errors.Join(append(errs,
		missing("only the plugin's store has %s", plugin, listed), missing("only the daemon's list has %s", listed, plugin))...)
}

// String describes the lease in an error.
func (l Lease) String() string {
	return fmt.Sprintf("%s in network %q of container ID %q, interface %q", l.IP, l.Network, l.ContainerID, l.Interface)
}

// duplicates returns an error for each address that occurs more than once.
func duplicates(where string, leases []Lease) []error {
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
