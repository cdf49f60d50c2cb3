package httpapi

import (
	"net/netip"

	"github.com/delegated-ipam/delegated-ipam/api/models"
	"github.com/delegated-ipam/delegated-ipam/internal/daemon/attachment"
	"github.com/delegated-ipam/delegated-ipam/internal/daemon/engine"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
)

const (
	// routerOwner is the owner for which cilium-agent requests the address of cilium_host.
	routerOwner = "router"
	// ipamMode is Cilium's name of the mode in which an agent needs this API.
	ipamMode = "delegated-plugin"
	// uplinkNumber is the interface-number that cilium-cni gives the uplink of a delegated plugin
	// (plugins/cilium-cni, allocateIPsWithDelegatedPlugin).
	uplinkNumber = "0"
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

// of returns the addressing of a family.
func (a Addressing) of(f attachment.Family) (enabled bool, router netip.Addr, allocRange netip.Prefix) {
	if f == attachment.IPv4 {
		return a.EnableIPv4, a.RouterIPv4, a.RangeIPv4
	}
	return a.EnableIPv6, a.RouterIPv6, a.RangeIPv6
}

// configuration returns the response to GET /config.
func (h *handlers) configuration() *models.DaemonConfiguration {
	return &models.DaemonConfiguration{Status: &models.DaemonConfigurationStatus{
		Addressing: h.hostAddressing(attachment.Record{}),
		IpamMode:   ipamMode,
	}}
}

// hostAddressing returns the addressing of the node for a response with the addresses of a
// record, which may be empty. Disabled families are left out.
func (h *handlers) hostAddressing(allocated attachment.Record) *models.NodeAddressing {
	router, ok := h.Engine.Record(h.DefaultPool, routerOwner)
	if !ok || router.State != attachment.Held {
		router = attachment.Record{}
	}
	return &models.NodeAddressing{
		IPv4: h.Addressing.family(attachment.IPv4, allocated, router),
		IPv6: h.Addressing.family(attachment.IPv6, allocated, router),
	}
}

func (a Addressing) family(f attachment.Family, allocated, router attachment.Record) *models.NodeAddressingElement {
	enabled, ip, subnet := a.of(f)
	if !enabled {
		return nil
	}
	if addr, ok := router.Address(f); ok && !ip.IsValid() {
		ip = addr.Addr()
	}
	for _, r := range []attachment.Record{allocated, router} {
		if addr, ok := r.Address(f); ok && !subnet.IsValid() {
			subnet = addr.Prefix.Masked()
		}
	}
	element := &models.NodeAddressingElement{Enabled: true, IP: formatAddr(ip)}
	if subnet.IsValid() { // the text of another one is "invalid Prefix"
		element.AllocRange = subnet.String()
	}
	return element
}

// allocation returns the response to POST /ipam: the allocated address of the requested family,
// or of each family if none was requested.
func (h *handlers) allocation(got engine.Attachment, requested attachment.Family) *models.IPAMResponse {
	out := &models.IPAMResponse{
		Address:        &models.AddressPair{},
		HostAddressing: h.hostAddressing(got.Record),
	}
	if addr, ok := claimedAddress(got, attachment.IPv4, requested); ok {
		out.IPv4 = h.Addressing.addressResponse(got, addr)
		out.Address.IPv4, out.Address.IPv4PoolName = out.IPv4.IP, got.Pool
		out.Address.IPv4ExpirationUUID = out.IPv4.ExpirationUUID
	}
	if addr, ok := claimedAddress(got, attachment.IPv6, requested); ok {
		out.IPv6 = h.Addressing.addressResponse(got, addr)
		out.Address.IPv6, out.Address.IPv6PoolName = out.IPv6.IP, got.Pool
		out.Address.IPv6ExpirationUUID = out.IPv6.ExpirationUUID
	}
	return out
}

// claimedAddress returns the address of family f if it is claimed and was requested.
func claimedAddress(got engine.Attachment, f, requested attachment.Family) (call.Address, bool) {
	if (requested != "" && requested != f) || !got.Claimed(f) {
		return call.Address{}, false
	}
	return got.Address(f)
}

func (a Addressing) addressResponse(got engine.Attachment, addr call.Address) *models.IPAMAddressResponse {
	out := &models.IPAMAddressResponse{
		IP:      addr.Addr().String(),
		Gateway: formatAddr(addr.Gateway),
		Cidrs:   []string{a.cidr(addr).String()},
	}
	if got.Expiration != nil {
		out.ExpirationUUID = got.Expiration.UUID
	}
	if mac := got.Result.MasterMAC; mac != "" {
		out.MasterMac, out.InterfaceNumber = mac, uplinkNumber
	}
	return out
}

// cidr returns the configured range if it contains the address. The addresses of another pool
// may be outside of it; for these it is the subnet of the plugin's result.
func (a Addressing) cidr(addr call.Address) netip.Prefix {
	if _, _, r := a.of(attachment.FamilyOf(addr.Addr())); r.Contains(addr.Addr()) {
		return r
	}
	return addr.Prefix.Masked()
}

// formatAddr returns an empty text for the zero Addr, whose String is "invalid IP".
func formatAddr(a netip.Addr) string {
	if !a.IsValid() {
		return ""
	}
	return a.String()
}
