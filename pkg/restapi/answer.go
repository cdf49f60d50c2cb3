package restapi

import (
	"net/netip"

	"github.com/delegated-ipam/delegated-ipam/api/models"
	"github.com/delegated-ipam/delegated-ipam/pkg/attachment"
	"github.com/delegated-ipam/delegated-ipam/pkg/delegate/call"
	"github.com/delegated-ipam/delegated-ipam/pkg/journal/record"
)

// uplinkNumber is what cilium-cni itself says of the uplink that a delegated
// plugin returned (plugins/cilium-cni, allocateIPsWithDelegatedPlugin).
const uplinkNumber = "0"

// response is the answer to an allocation: the families that were asked for
// (each one for an empty family) and are handed out.
func (a Addressing) response(got attachment.Attachment, asked record.Family, find lookup) *models.IPAMResponse {
	out := &models.IPAMResponse{
		Address:        &models.AddressPair{},
		HostAddressing: a.hostAddressing(got.Record, find),
	}
	if at, ok := handedOut(got, record.IPv4, asked); ok {
		out.IPv4 = a.address(got, at)
		out.Address.IPv4, out.Address.IPv4PoolName = out.IPv4.IP, got.Pool
		out.Address.IPv4ExpirationUUID = out.IPv4.ExpirationUUID
	}
	if at, ok := handedOut(got, record.IPv6, asked); ok {
		out.IPv6 = a.address(got, at)
		out.Address.IPv6, out.Address.IPv6PoolName = out.IPv6.IP, got.Pool
		out.Address.IPv6ExpirationUUID = out.IPv6.ExpirationUUID
	}
	return out
}

func handedOut(got attachment.Attachment, f, asked record.Family) (call.Address, bool) {
	if (asked != "" && asked != f) || !got.Claimed(f) {
		return call.Address{}, false
	}
	return got.Address(f)
}

func (a Addressing) address(got attachment.Attachment, at call.Address) *models.IPAMAddressResponse {
	out := &models.IPAMAddressResponse{
		IP:      at.Addr().String(),
		Gateway: addrText(at.Gateway),
		Cidrs:   []string{a.cidr(at).String()},
	}
	if got.Expiration != nil {
		out.ExpirationUUID = got.Expiration.UUID
	}
	if mac := got.Result.MasterMAC; mac != "" {
		out.MasterMac, out.InterfaceNumber = mac, uplinkNumber
	}
	return out
}

// cidr is the configured range if the address lies in it; another pool's
// addresses may lie elsewhere, and then it is the subnet that the plugin told.
func (a Addressing) cidr(at call.Address) netip.Prefix {
	if r := a.allocRange(record.FamilyOf(at.Addr())); r.Contains(at.Addr()) {
		return r
	}
	return at.Prefix.Masked()
}
