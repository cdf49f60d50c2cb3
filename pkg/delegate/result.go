package delegate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/containernetworking/cni/pkg/types"
	current "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/cni/pkg/types/create"

	"github.com/delegated-ipam/delegated-ipam/pkg/delegate/call"
)

// parseResult reads what ADD printed, as the CNI library does: a result that names
// no version is of that of the configuration.
func parseResult(ctx context.Context, stdout []byte, cniVersion string) (types.Result, error) {
	if result, err := create.Create(cniVersion, stdout); err == nil {
		return result, nil // it names the version, as nearly every one does
	}
	netconf := fmt.Appendf(nil, `{"cniVersion":%q}`, cniVersion)
	return invoke.ExecPluginWithResult(ctx, "", netconf, &invoke.Args{}, printedBefore{stdout: stdout})
}

// printedBefore lets the library read what a plugin has printed already.
type printedBefore struct {
	invoke.Exec
	stdout []byte
}

// ExecPlugin implements invoke.Exec.
func (p printedBefore) ExecPlugin(context.Context, string, []byte, []string) ([]byte, error) {
	return p.stdout, nil
}

// readResult turns what ADD printed into a result, or says what is wrong with
// it. linkMAC returns the MAC of a network interface by its name.
func readResult(printed types.Result, cniVersion string, linkMAC func(string) (string, error)) (call.Result, error) {
	latest, err := convert(printed, current.ImplementedSpecVersion)
	if err != nil {
		return call.Result{}, err
	}
	result := latest.(*current.Result)
	addresses, err := addressesOf(result)
	if err != nil {
		return call.Result{}, err
	}
	mac, err := masterMAC(result.Interfaces, linkMAC)
	if err != nil {
		return call.Result{}, err
	}
	raw, err := marshalAs(latest, cniVersion)
	if err != nil {
		return call.Result{}, err
	}
	// As prevResult it will be read again, by us and by the plugin: a route
	// without a destination, for one, is written as what cannot be read.
	if _, err := create.Create(cniVersion, raw); err != nil {
		return call.Result{}, fmt.Errorf("its result cannot be given back to it as prevResult: %w", err)
	}
	return call.Result{Addresses: addresses, MasterMAC: mac, Raw: raw}, nil
}

// resultAs returns a recorded result in a CNI version: a context of an older
// ADD may speak another one than the result at hand.
func resultAs(raw json.RawMessage, cniVersion string) (json.RawMessage, error) {
	recorded, err := create.CreateFromBytes(raw)
	if err != nil {
		return nil, err
	}
	if recorded.Version() == cniVersion {
		return raw, nil
	}
	return marshalAs(recorded, cniVersion)
}

func marshalAs(r types.Result, cniVersion string) (json.RawMessage, error) {
	converted, err := convert(r, cniVersion)
	if err != nil {
		return nil, err
	}
	return json.Marshal(converted)
}

// convert is the library's conversion. It panics on null entries of a list,
// which a plugin's output must not be able to cause here.
func convert(r types.Result, cniVersion string) (converted types.Result, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("its result cannot be converted to CNI version %s: %v", cniVersion, p)
		}
	}()
	return r.GetAsVersion(cniVersion)
}

// addressesOf returns the addresses of a result: at least one, each once.
func addressesOf(r *current.Result) ([]call.Address, error) {
	if len(r.IPs) == 0 {
		return nil, errors.New("its result has no address")
	}
	addresses := make([]call.Address, 0, len(r.IPs))
	seen := make(map[netip.Addr]bool, len(r.IPs))
	for _, ip := range r.IPs {
		if ip == nil {
			return nil, errors.New("its result has an empty entry in ips")
		}
		prefix, err := prefixOf(ip.Address)
		if err != nil {
			return nil, err
		}
		if seen[prefix.Addr()] {
			return nil, fmt.Errorf("its result has the address %s twice", prefix.Addr())
		}
		seen[prefix.Addr()] = true
		addresses = append(addresses, call.Address{Prefix: prefix, Gateway: gatewayOf(ip.Gateway)})
	}
	return addresses, nil
}

// prefixOf returns a unicast address with its prefix length. A 4-in-6 address
// becomes the IPv4 address that it means.
func prefixOf(n net.IPNet) (netip.Prefix, error) {
	addr, _ := netip.AddrFromSlice(n.IP)
	addr = addr.Unmap()
	ones, bits := n.Mask.Size()
	if addr.Is4() && bits == 128 {
		ones -= 96
	}
	prefix := netip.PrefixFrom(addr, ones)
	if bits == 0 || !prefix.IsValid() {
		return netip.Prefix{}, fmt.Errorf("its result has the address %q, which is no address with a prefix length", n.String())
	}
	if addr.IsUnspecified() || addr.IsMulticast() {
		return netip.Prefix{}, fmt.Errorf("its result has the address %s, which no interface can have", addr)
	}
	return prefix, nil
}

// gatewayOf returns the zero address for a gateway that is not there.
func gatewayOf(ip net.IP) netip.Addr {
	addr, ok := netip.AddrFromSlice(ip)
	if !ok || addr.Unmap().IsUnspecified() {
		return netip.Addr{}
	}
	return addr.Unmap()
}
