package client

import (
	"context"
	"encoding/json"
	"net/http"
	"net/netip"
)

// Family is an address family.
type Family string

// The address families.
const (
	IPv4 Family = "ipv4"
	IPv6 Family = "ipv6"
)

// AllocateOptions are the optional parameters of [Client.Allocate].
type AllocateOptions struct {
	// Family is the one family to allocate. If it is empty, each family is allocated that the sidecar
	// serves and the plugin returns.
	Family Family
	// Pool is the pool to allocate from; [DefaultPool] if it is empty.
	Pool string
	// Expiration makes the allocation temporary: it is released after serve --ipam-expiration unless
	// [Client.Restore], or Allocate without Expiration, confirms it before.
	Expiration bool
}

// Allocation is the answer to [Client.Allocate].
type Allocation struct {
	// IPv4 and IPv6 are the address of each family; nil for a family that was not allocated.
	IPv4, IPv6 *AllocatedAddress
	// HostIPv4 and HostIPv6 are the addressing of the node; nil for a family that the sidecar does
	// not serve.
	HostIPv4, HostIPv6 *HostAddressing
	// Raw is the JSON answer: IPAMResponse of swagger.yaml.
	Raw json.RawMessage
}

// AllocatedAddress is one address of an [Allocation].
type AllocatedAddress struct {
	// IP is the address.
	IP netip.Addr
	// Pool is its pool.
	Pool string
	// Gateway is the gateway that the plugin returned; the zero Addr if it returned none.
	Gateway netip.Addr
	// CIDRs are the ranges from which addresses of the family are allocated.
	CIDRs []netip.Prefix
	// ExpirationUUID identifies a temporary allocation; empty for a confirmed one. Both families of
	// an allocation have the same one.
	ExpirationUUID string
	// MasterMAC is the hardware address of the uplink as the plugin returned it; empty for none.
	MasterMAC string
	// InterfaceNumber is "0" if there is a MasterMAC, and empty otherwise.
	InterfaceNumber string
}

// HostAddressing is the addressing of the node in one family.
type HostAddressing struct {
	// IP is the address of the router (cilium_host); the zero Addr while it is not known.
	IP netip.Addr
	// AllocRange is the range from which addresses are allocated; the zero Prefix while it is not known.
	AllocRange netip.Prefix
}

// Allocate allocates the addresses of an owner, one of each family asked for. An owner that holds
// addresses in the pool gets the same ones again. An owner is at most 512 bytes without control
// characters, such as "router" or "namespace/pod"; if it is empty, the sidecar generates one.
//
// Errors: [ErrInvalid], [ErrForbidden], [ErrFailed] (the plugin has no address or cannot be run, the
// pool is unknown, the family is disabled, …), [ErrRetryLater], and those of the connection.
func (c *Client) Allocate(ctx context.Context, owner string, o AllocateOptions) (*Allocation, error) {
	r := request{
		method: http.MethodPost, path: "/ipam",
		query: parameters("owner", owner, "family", string(o.Family), "pool", o.Pool),
	}
	if o.Expiration {
		r.header, r.value = "expiration", "true"
	}
	var raw json.RawMessage
	if err := c.send(ctx, r, readAll(&raw)); err != nil {
		return nil, err
	}
	var w wireAllocation
	if err := json.Unmarshal(raw, &w); err != nil {
		return nil, c.failed(err)
	}
	a := w.allocation()
	if a.IPv4 == nil && a.IPv6 == nil {
		return nil, c.failed(notSidecar("an allocation without an address"))
	}
	a.Raw = raw
	return a, nil
}

// wireAllocation is IPAMResponse of swagger.yaml.
type wireAllocation struct {
	Address struct {
		IPv4     netip.Addr `json:"ipv4"`
		IPv4Pool string     `json:"ipv4-pool-name"`
		IPv6     netip.Addr `json:"ipv6"`
		IPv6Pool string     `json:"ipv6-pool-name"`
	} `json:"address"`
	IPv4           wireAddress `json:"ipv4"`
	IPv6           wireAddress `json:"ipv6"`
	HostAddressing struct {
		IPv4 wireHostAddressing `json:"ipv4"`
		IPv6 wireHostAddressing `json:"ipv6"`
	} `json:"host-addressing"`
}

// wireAddress is IPAMAddressResponse.
type wireAddress struct {
	Gateway         netip.Addr     `json:"gateway"`
	CIDRs           []netip.Prefix `json:"cidrs"`
	ExpirationUUID  string         `json:"expiration-uuid"`
	MasterMAC       string         `json:"master-mac"`
	InterfaceNumber string         `json:"interface-number"`
}

// wireHostAddressing is NodeAddressingElement.
type wireHostAddressing struct {
	Enabled    bool         `json:"enabled"`
	IP         netip.Addr   `json:"ip"`
	AllocRange netip.Prefix `json:"alloc-range"`
}

func (w *wireAllocation) allocation() *Allocation {
	return &Allocation{
		IPv4:     w.IPv4.allocated(w.Address.IPv4, w.Address.IPv4Pool),
		IPv6:     w.IPv6.allocated(w.Address.IPv6, w.Address.IPv6Pool),
		HostIPv4: w.HostAddressing.IPv4.host(),
		HostIPv6: w.HostAddressing.IPv6.host(),
	}
}

func (w wireAddress) allocated(ip netip.Addr, pool string) *AllocatedAddress {
	if !ip.IsValid() {
		return nil
	}
	return &AllocatedAddress{
		IP: ip, Pool: pool, Gateway: w.Gateway, CIDRs: w.CIDRs,
		ExpirationUUID: w.ExpirationUUID, MasterMAC: w.MasterMAC, InterfaceNumber: w.InterfaceNumber,
	}
}

func (w wireHostAddressing) host() *HostAddressing {
	if !w.Enabled {
		return nil
	}
	return &HostAddressing{IP: w.IP, AllocRange: w.AllocRange}
}
