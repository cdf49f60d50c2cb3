package httpapi

import (
	"net/netip"

	"github.com/delegated-ipam/delegated-ipam/api/models"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/engine"
	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/journal/record"
)

// uplinkNumber is the interface-number that cilium-cni gives the uplink of a delegated plugin
// (plugins/cilium-cni, allocateIPsWithDelegatedPlugin).
const uplinkNumber = "0"

// allocation returns the response to POST /ipam: the allocated address of the requested family,
// or of each family if none was requested.
func (a Addressing) allocation(got engine.Attachment, requested record.Family, lookup lookupFunc) *models.IPAMResponse {
	out := &models.IPAMResponse{
		Address:        &models.AddressPair{},
		HostAddressing: a.hostAddressing(got.Record, lookup),
	}
	if addr, ok := claimedAddress(got, record.IPv4, requested); ok {
		out.IPv4 = a.addressResponse(got, addr)
		out.Address.IPv4, out.Address.IPv4PoolName = out.IPv4.IP, got.Pool
		out.Address.IPv4ExpirationUUID = out.IPv4.ExpirationUUID
	}
	if addr, ok := claimedAddress(got, record.IPv6, requested); ok {
		out.IPv6 = a.addressResponse(got, addr)
		out.Address.IPv6, out.Address.IPv6PoolName = out.IPv6.IP, got.Pool
		out.Address.IPv6ExpirationUUID = out.IPv6.ExpirationUUID
	}
	return out
}

// claimedAddress returns the address of family f if it is claimed and was requested.
func claimedAddress(got engine.Attachment, f, requested record.Family) (call.Address, bool) {
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
	if r := a.allocRange(record.FamilyOf(addr.Addr())); r.Contains(addr.Addr()) {
		return r
	}
	return addr.Prefix.Masked()
}
