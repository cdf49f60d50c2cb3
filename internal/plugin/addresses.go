package plugin

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/delegated-ipam/delegated-ipam/internal/files"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/hostlocal"
)

const (
	// typeStatic is the plugin that returns the addresses of its configuration.
	typeStatic = "static"
	// capabilityIPs is the capability by which a runtime passes addresses to a plugin.
	capabilityIPs = "ips"
)

// CheckAddresses returns why no ADD with the configuration of a network, of which inv is an invocation,
// gives an owner an address, although the plugin accepts it, with the file; nil if one does, or if that is
// unknown. It reads the file of ipam.resolvConf and runs nothing.
func (r *Runner) CheckAddresses(n call.Network, inv call.Invocation) error {
	var config struct{ IPAM ipamAddresses }
	if err := json.Unmarshal(inv.Config, &config); err != nil {
		return nil // the plugin reports it
	}
	err := r.checkFamilies(n, inv, config.IPAM)
	switch {
	// A runtime may pass the addresses.
	case inv.Plugin == typeStatic && len(config.IPAM.Addresses) == 0 && !n.ServesContainers && !slices.Contains(inv.Capabilities, capabilityIPs):
		err = errors.New("plugin static returns the ipam.addresses of its configuration, and there are none")
	case inv.Plugin == typeStatic && err == nil:
		for _, a := range config.IPAM.Addresses {
			if _, parseErr := netip.ParsePrefix(a.Address); parseErr != nil {
				err = fmt.Errorf("plugin static refuses ipam.addresses with %q; expected an address with a prefix length, such as 10.0.0.7/24", a.Address)
			}
		}
	case inv.Profile.LikeHostLocal() && config.IPAM.ResolvConf != "":
		// The plugin opens it where this process runs, such as in its container.
		if _, readErr := files.Read(config.IPAM.ResolvConf, hostlocal.MaxResolvConf); readErr != nil {
			err = fmt.Errorf("plugin %s refuses every ADD without the file %s (ipam.resolvConf): %w; expected it to exist where the plugin runs, mounted into the daemon's container, or the key left out",
				inv.Plugin, config.IPAM.ResolvConf, readErr)
		}
	}
	if err != nil {
		return wrapNetworkErr(n, err)
	}
	return nil
}

// ipamAddresses is the part of an ipam section that determines which addresses there are.
type ipamAddresses struct {
	ResolvConf string
	Addresses  []struct{ Address string }
}

// checkFamilies returns an error if the configuration has addresses of disabled families alone. A
// container gets what the plugin returns.
func (r *Runner) checkFamilies(n call.Network, inv call.Invocation, ipam ipamAddresses) error {
	var v4, v6 bool
	if inv.Profile.LikeHostLocal() {
		if ranges, err := hostlocal.ParseConfig(inv.Config); err == nil {
			v4, v6 = ranges.Size(netip.Addr.Is4) > 0, ranges.Size(netip.Addr.Is6) > 0
		}
	}
	if inv.Plugin == typeStatic {
		for _, a := range ipam.Addresses {
			if p, err := netip.ParsePrefix(a.Address); err == nil {
				v4, v6 = v4 || p.Addr().Unmap().Is4(), v6 || !p.Addr().Unmap().Is4()
			}
		}
	}
	o := r.opts
	switch {
	case n.ServesContainers, !v4 && !v6, v4 && o.EnableIPv4, v6 && o.EnableIPv6, !o.EnableIPv4 && !o.EnableIPv6:
		return nil
	case v4:
		return errors.New("the configuration has ipv4 addresses alone, and only ipv6 is enabled; expected --enable-ipv4, or a range of that family")
	default:
		return errors.New("the configuration has ipv6 addresses alone, and only ipv4 is enabled; expected --enable-ipv6, or a range of that family")
	}
}
