package e2e

import (
	"fmt"
	"net"
	"testing"

	current "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/cni/pkg/types/create"
	"github.com/vishvananda/netlink"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

// ciliumCNI converts a plugin's result as cilium-cni v1.20.2 does on a dual-stack node
// (plugins/cilium-cni/cmd, allocateIPsWithDelegatedPlugin), with three differences of the API:
//
//   - address.ipv4 and address.ipv6 have no prefix length, as in the agent's API;
//   - a missing or unspecified gateway is empty instead of "<nil>";
//   - without a master-mac, interface-number is absent.
func ciliumCNI(t *testing.T, printed string) (harness.Allocation, error) {
	t.Helper()
	var out harness.Allocation
	any, err := create.CreateFromBytes([]byte(printed))
	check.Must(t, err)
	result, err := current.NewResultFromResult(any)
	check.Must(t, err)
	mac, err := uplinkMAC(result.Interfaces)
	if err != nil {
		return out, err
	}
	for _, ip := range result.IPs {
		f := &harness.Family{IP: ip.Address.IP.String(), MasterMAC: mac}
		if ip.Gateway != nil && !ip.Gateway.IsUnspecified() {
			f.Gateway = ip.Gateway.String()
		}
		if mac != "" {
			f.InterfaceNumber = "0"
		}
		if ip.Address.IP.To4() != nil {
			out.IPv4, out.Address.IPv4 = f, f.IP
		} else {
			out.IPv6, out.Address.IPv6 = f, f.IP
		}
	}
	return out, nil
}

func uplinkMAC(interfaces []*current.Interface) (string, error) {
	for _, i := range interfaces {
		switch {
		case i.Sandbox != "":
			continue
		case i.Mac != "":
			mac, err := net.ParseMAC(i.Mac)
			return mac.String(), err
		case i.Name != "":
			link, err := netlink.LinkByName(i.Name)
			if err != nil {
				return "", fmt.Errorf("uplink %q: %w", i.Name, err)
			}
			return link.Attrs().HardwareAddr.String(), nil
		}
		break
	}
	return "", nil
}

// wantAllocation compares a response with the conversion by ciliumCNI, which lacks CIDRs and pools.
func wantAllocation(t *testing.T, got, want harness.Allocation) {
	t.Helper()
	got.Address.IPv4PoolName, got.Address.IPv6PoolName = "", ""
	for _, f := range []*harness.Family{got.IPv4, got.IPv6} {
		if f != nil {
			f.CIDRs = nil
		}
	}
	if got, want := asJSON(t, got), asJSON(t, want); got != want {
		t.Errorf("got %s; want %s", got, want)
	}
}
