package httpapi

import (
	"net/netip"

	"github.com/delegated-ipam/delegated-ipam/api/models"
	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/journal/record"
)

const (
	// routerOwner is the owner for which cilium-agent requests the address of cilium_host.
	routerOwner = "router"
	// ipamMode is Cilium's name of the mode in which an agent needs this API.
	ipamMode = "delegated-plugin"
)

// Addressing is the configured addressing of the node, per address family.
type Addressing struct {
	EnableIPv4, EnableIPv6 bool
	// RouterIPv4 and RouterIPv6 are the node's router addresses; the zero Addr for the
	// address that the owner "router" holds in the default pool.
	RouterIPv4, RouterIPv6 netip.Addr
	// RangeIPv4 and RangeIPv6 are the node's allocation ranges; the zero Prefix for the
	// subnet of the address in the response.
	RangeIPv4, RangeIPv6 netip.Prefix
}

// lookupFunc returns the record of the router, if there is one.
type lookupFunc func() (record.Record, bool)

func (a Addressing) enabled(f record.Family) bool {
	if f == record.IPv4 {
		return a.EnableIPv4
	}
	return a.EnableIPv6
}

func (a Addressing) router(f record.Family) netip.Addr {
	if f == record.IPv4 {
		return a.RouterIPv4
	}
	return a.RouterIPv6
}

func (a Addressing) allocRange(f record.Family) netip.Prefix {
	if f == record.IPv4 {
		return a.RangeIPv4
	}
	return a.RangeIPv6
}

// configuration returns the response to GET /config.
func (a Addressing) configuration(lookup lookupFunc) *models.DaemonConfiguration {
	return &models.DaemonConfiguration{Status: &models.DaemonConfigurationStatus{
		Addressing: a.hostAddressing(record.Record{}, lookup),
		IpamMode:   ipamMode,
	}}
}

// hostAddressing returns the addressing of the node for a response with the addresses of a
// record, which may be empty. Disabled families are left out. It calls lookup only if a router
// address or a range is not configured.
func (a Addressing) hostAddressing(allocated record.Record, lookup lookupFunc) *models.NodeAddressing {
	var router record.Record
	if a.needsRouter() {
		router = routerRecord(lookup)
	}
	return &models.NodeAddressing{
		IPv4: a.family(record.IPv4, allocated, router),
		IPv6: a.family(record.IPv6, allocated, router),
	}
}

// needsRouter reports whether an enabled family lacks a configured router address or range.
func (a Addressing) needsRouter() bool {
	incomplete := func(f record.Family) bool {
		return a.enabled(f) && (!a.router(f).IsValid() || !a.allocRange(f).IsValid())
	}
	return incomplete(record.IPv4) || incomplete(record.IPv6)
}

func (a Addressing) family(f record.Family, allocated, router record.Record) *models.NodeAddressingElement {
	if !a.enabled(f) {
		return nil
	}
	ip, subnet := a.router(f), a.allocRange(f)
	if addr, ok := router.Address(f); ok && !ip.IsValid() {
		ip = addr.Addr()
	}
	for _, r := range []record.Record{allocated, router} {
		if addr, ok := r.Address(f); ok && !subnet.IsValid() {
			subnet = addr.Prefix.Masked()
		}
	}
	return &models.NodeAddressingElement{Enabled: true, IP: formatAddr(ip), AllocRange: formatPrefix(subnet)}
}

// routerRecord returns the held record of the router; an empty one if there is none.
func routerRecord(lookup lookupFunc) record.Record {
	if r, ok := lookup(); ok && r.State == record.Held {
		return r
	}
	return record.Record{}
}

// formatAddr returns an empty text for the zero Addr, whose String is "invalid IP".
func formatAddr(a netip.Addr) string {
	if !a.IsValid() {
		return ""
	}
	return a.String()
}

// formatPrefix returns an empty text for the zero Prefix, whose String is "invalid Prefix".
func formatPrefix(p netip.Prefix) string {
	if !p.IsValid() {
		return ""
	}
	return p.String()
}
