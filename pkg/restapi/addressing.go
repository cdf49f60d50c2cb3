package restapi

import (
	"net/netip"

	"github.com/delegated-ipam/delegated-ipam/api/models"
	"github.com/delegated-ipam/delegated-ipam/pkg/attachment"
	"github.com/delegated-ipam/delegated-ipam/pkg/journal/record"
)

const (
	// routerOwner is the owner under which cilium-agent asks for the address of cilium_host.
	routerOwner = "router"
	// ipamMode is Cilium's name of the mode in which an agent needs this API.
	ipamMode = "delegated-plugin"
)

// Addressing is what the answers say of the node, per address family.
type Addressing struct {
	EnableIPv4, EnableIPv6 bool
	// RouterIPv4 and RouterIPv6 are the node's router addresses; the zero Addr
	// for the address that the owner "router" holds in pool "default".
	RouterIPv4, RouterIPv6 netip.Addr
	// RangeIPv4 and RangeIPv6 are the node's allocation ranges; the zero Prefix
	// for the subnet of the address at hand.
	RangeIPv4, RangeIPv6 netip.Prefix
}

// lookup returns an owner's attachment in a pool, if there is one; it is asked only
// if the options leave something open.
type lookup func(pool, owner string) (attachment.Attachment, bool)

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

// configuration is the answer of GET /config.
func (a Addressing) configuration(find lookup) *models.DaemonConfiguration {
	return &models.DaemonConfiguration{Status: &models.DaemonConfigurationStatus{
		Addressing: a.hostAddressing(record.Record{}, find),
		IpamMode:   ipamMode,
	}}
}

// hostAddressing describes the node to a client that was just answered with the
// addresses of a record, which may be empty. Families that are off are left out.
func (a Addressing) hostAddressing(answered record.Record, find lookup) *models.NodeAddressing {
	var router record.Record
	if a.needsRouter() {
		router = heldRouter(find)
	}
	return &models.NodeAddressing{
		IPv4: a.element(record.IPv4, answered, router),
		IPv6: a.element(record.IPv6, answered, router),
	}
}

// needsRouter tells whether the router's attachment must fill what is not configured.
func (a Addressing) needsRouter() bool {
	open := func(f record.Family) bool {
		return a.enabled(f) && (!a.router(f).IsValid() || !a.allocRange(f).IsValid())
	}
	return open(record.IPv4) || open(record.IPv6)
}

func (a Addressing) element(f record.Family, answered, router record.Record) *models.NodeAddressingElement {
	if !a.enabled(f) {
		return nil
	}
	ip, subnet := a.router(f), a.allocRange(f)
	if held, ok := router.Address(f); ok && !ip.IsValid() {
		ip = held.Addr()
	}
	for _, r := range []record.Record{answered, router} {
		if at, ok := r.Address(f); ok && !subnet.IsValid() {
			subnet = at.Prefix.Masked()
		}
	}
	return &models.NodeAddressingElement{Enabled: true, IP: addrText(ip), AllocRange: prefixText(subnet)}
}

// heldRouter is the record from which a router address may be told: that of
// owner "router" in pool "default" while it is held; else an empty one.
func heldRouter(find lookup) record.Record {
	if a, ok := find(attachment.DefaultPool, routerOwner); ok && a.State == record.Held {
		return a.Record
	}
	return record.Record{}
}

// addrText is empty for the zero Addr, which netip would print as "invalid IP".
func addrText(a netip.Addr) string {
	if !a.IsValid() {
		return ""
	}
	return a.String()
}

// prefixText is empty for the zero Prefix, which netip would print as "invalid Prefix".
func prefixText(p netip.Prefix) string {
	if !p.IsValid() {
		return ""
	}
	return p.String()
}
