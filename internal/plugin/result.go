package plugin

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
	"github.com/vishvananda/netlink"

	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
)

// parseResult parses the output of ADD as the CNI library does: a result without a version has that
// of the configuration.
func parseResult(ctx context.Context, stdout []byte, cniVersion string) (types.Result, error) {
	netconf := fmt.Appendf(nil, `{"cniVersion":%q}`, cniVersion)
	return invoke.ExecPluginWithResult(ctx, "", netconf, &invoke.Args{}, execPrinted{stdout: stdout})
}

// execPrinted is an invoke.Exec that lets the library parse output that was printed before.
type execPrinted struct {
	invoke.Exec
	stdout []byte
}

func (p execPrinted) ExecPlugin(context.Context, string, []byte, []string) ([]byte, error) {
	return p.stdout, nil
}

// readResult converts the result of an ADD, or returns what is wrong with it. linkMAC returns the
// MAC of a network interface by its name.
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
	// As prevResult it is parsed again, by us and by the plugin. A route without a destination, for
	// example, is marshalled as text that cannot be parsed.
	if _, err := create.Create(cniVersion, raw); err != nil {
		return call.Result{}, fmt.Errorf("its result is not usable as prevResult: %w", err)
	}
	return call.Result{Addresses: addresses, MasterMAC: mac, Raw: raw}, nil
}

// resultAs returns a recorded result in a CNI version: the invocation of an older ADD may have
// another one than the result at hand.
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

// convert is the library's conversion. That panics on null entries of a list, which the output of a
// plugin must not be able to cause here.
func convert(r types.Result, cniVersion string) (converted types.Result, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("its result cannot be converted to CNI version %s: %v", cniVersion, p)
		}
	}()
	return r.GetAsVersion(cniVersion)
}

// maxAddresses bounds the addresses of one result. Real plugins return one or two, and a few per
// range set; each is kept in memory, in the record and in every list.
const maxAddresses = 64

// addressesOf returns the addresses of a result: at least one, at most maxAddresses, each once.
func addressesOf(r *current.Result) ([]call.Address, error) {
	if len(r.IPs) == 0 {
		return nil, errors.New("its result has no address")
	}
	if len(r.IPs) > maxAddresses {
		return nil, fmt.Errorf("its result has %d addresses; expected at most %d", len(r.IPs), maxAddresses)
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

// prefixOf returns a unicast address with its prefix length. An IPv4-mapped IPv6 address becomes
// the IPv4 one.
func prefixOf(n net.IPNet) (netip.Prefix, error) {
	addr, _ := netip.AddrFromSlice(n.IP)
	addr = addr.Unmap()
	ones, bits := n.Mask.Size()
	if addr.Is4() && bits == 128 {
		ones -= 96
	}
	prefix := netip.PrefixFrom(addr, ones)
	if bits == 0 || !prefix.IsValid() {
		return netip.Prefix{}, fmt.Errorf("its result has the address %q, which is not an address with a prefix length", n.String())
	}
	if addr.IsUnspecified() || addr.IsMulticast() {
		return netip.Prefix{}, fmt.Errorf("its result has the address %s, which no interface can have", addr)
	}
	return prefix, nil
}

// gatewayOf returns the zero Addr without a gateway.
func gatewayOf(ip net.IP) netip.Addr {
	addr, ok := netip.AddrFromSlice(ip)
	if !ok || addr.Unmap().IsUnspecified() {
		return netip.Addr{}
	}
	return addr.Unmap()
}

// masterMAC returns the MAC of the uplink: the first interface without a sandbox, by its mac, or
// else by the link of its name. It is empty if the plugin names no uplink. A link that does not
// exist is an error, as in cilium-cni: pods behind an unknown uplink have no route out.
func masterMAC(interfaces []*current.Interface, linkMAC func(string) (string, error)) (string, error) {
	for _, i := range interfaces {
		if i == nil {
			return "", errors.New("its result has an empty entry in interfaces")
		}
		if i.Sandbox != "" {
			continue
		}
		if i.Mac == "" && i.Name == "" {
			return "", nil // as cilium-cni does
		}
		if i.Mac == "" {
			return linkMAC(i.Name)
		}
		mac, err := net.ParseMAC(i.Mac)
		if err != nil {
			return "", fmt.Errorf("its result has interface %q: %w", i.Name, err)
		}
		return mac.String(), nil
	}
	return "", nil
}

func linkMAC(name string) (string, error) {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return "", fmt.Errorf("its result names the uplink %q without a MAC, and looking that up failed: %w", name, err)
	}
	return link.Attrs().HardwareAddr.String(), nil
}
