package app

import (
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"regexp"
	"slices"

	"github.com/delegated-ipam/delegated-ipam/pkg/delegate"
	"github.com/delegated-ipam/delegated-ipam/pkg/metrics/endpoint"
	"github.com/delegated-ipam/delegated-ipam/pkg/ownermatch"
)

// poolName is what a pool may be called: Cilium's pool names are DNS labels.
var poolName = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)

// ifName is what Linux and the CNI spec (section 2, CNI_IFNAME) take.
var ifName = regexp.MustCompile(`^[^\s/:\x00-\x1f]{1,15}$`)

// What a node can bear: more would be a slip, and take its memory.
const (
	mostProcesses = 1024
	mostQueued    = 1 << 20
)

// Validate refuses what cannot work. The error names each option, what it got
// and what it takes.
func (c Config) Validate() error { return errors.Join(c.ValidateValues(), c.validateParts()) }

// ValidateValues is the part of Validate that judges values alone, wherever they are
// looked at.
func (c Config) ValidateValues() error {
	var errs []error
	bad := func(option string, got any, takes string) {
		errs = append(errs, fmt.Errorf("--%s is %q; expected %s", option, fmt.Sprint(got), takes))
	}
	if c.NodeName == "" {
		bad("node-name", c.NodeName, "the name of this node")
	}
	if !c.EnableIPv4 && !c.EnableIPv6 {
		bad("enable-ipv4", c.EnableIPv4, "true here or for --enable-ipv6: with both families off there is nothing to hand out")
	}
	if !filepath.IsAbs(c.StateDir) {
		bad("state-dir", c.StateDir, "an absolute path")
	}
	if !filepath.IsAbs(c.SocketPath) {
		bad("socket-path", c.SocketPath, "an absolute path")
	}
	if c.CNIConfDir == "" && c.CNIConfFile == "" {
		bad("cni-conf-dir", c.CNIConfDir, "a folder, here or a file in --cni-conf-file")
	}
	if slices.Contains(c.CNIBinDirs, "") {
		bad("cni-bin-dir", c.CNIBinDirs, "folders of CNI plugins, none of them empty")
	}
	if !ifName.MatchString(c.CNIIfName) || c.CNIIfName == "." || c.CNIIfName == ".." {
		bad("cni-ifname", c.CNIIfName, "an interface name of 1 to 15 characters, such as eth0")
	}
	if c.SocketMode == 0 || c.SocketMode&^0o777 != 0 {
		bad("socket-mode", fmt.Sprintf("%#o", c.SocketMode), "permission bits such as 0660")
	}
	errs = append(errs, c.validateAddresses(), c.validatePools(), c.validateLimits())
	if _, err := ownermatch.Parse(c.Owners); err != nil {
		errs = append(errs, fmt.Errorf("--owners: %w", err))
	}
	return errors.Join(errs...)
}

// validateParts lets the parts judge what only they know, before anything is
// made or waited for. Files that may change, those of --plugin-profile and the CNI
// configuration, are no part of it: they are waited for.
func (c Config) validateParts() error {
	_, err := delegate.New(c.plugin())
	return errors.Join(err, c.socket().Validate())
}

func (c Config) validateAddresses() error {
	var errs []error
	check := func(option string, ok bool, got fmt.Stringer, takes string) {
		if !ok {
			errs = append(errs, fmt.Errorf("--%s is %q; expected %s", option, got, takes))
		}
	}
	check("local-router-ipv4", !c.LocalRouterIPv4.IsValid() || c.LocalRouterIPv4.Is4() && isUnicast(c.LocalRouterIPv4), c.LocalRouterIPv4, "an IPv4 address that a host can have")
	check("local-router-ipv6", !c.LocalRouterIPv6.IsValid() || isIPv6(c.LocalRouterIPv6) && isUnicast(c.LocalRouterIPv6), c.LocalRouterIPv6, "an IPv6 address that a host can have")
	check("ipv4-range", !c.IPv4Range.IsValid() || c.IPv4Range.Addr().Is4(), c.IPv4Range, "an IPv4 prefix such as 10.0.0.0/24")
	check("ipv6-range", !c.IPv6Range.IsValid() || isIPv6(c.IPv6Range.Addr()), c.IPv6Range, "an IPv6 prefix such as fd00::/64")
	return errors.Join(errs...)
}

// isIPv6 leaves out IPv4 addresses in IPv6 form.
func isIPv6(a netip.Addr) bool { return a.Is6() && !a.Is4In6() }

func isUnicast(a netip.Addr) bool { return !a.IsUnspecified() && !a.IsMulticast() && a.Zone() == "" }

func (c Config) validatePools() error {
	var errs []error
	networks := map[string]string{}
	for _, pool := range c.poolNames() {
		network := c.Pools[pool]
		if !poolName.MatchString(pool) {
			errs = append(errs, fmt.Errorf("--pool: pool name %q; expected lower case letters, digits and dashes, at most 63", pool))
		}
		if other, ok := networks[network]; ok && network != "" {
			errs = append(errs, fmt.Errorf("--pool: pools %q and %q both name network %q; expected a network of its own for each", other, pool, network))
		}
		networks[network] = pool
	}
	if len(c.Pools) == 0 {
		errs = append(errs, errors.New("--pool: there is no pool; expected at least one"))
	}
	return errors.Join(errs...)
}

func (c Config) validateLimits() error {
	var errs []error
	check := func(option string, ok bool, got any, takes string) {
		if !ok {
			errs = append(errs, fmt.Errorf("--%s is %v; expected %s", option, got, takes))
		}
	}
	check("max-plugin-processes", 1 <= c.MaxPluginProcesses && c.MaxPluginProcesses <= mostProcesses, c.MaxPluginProcesses, fmt.Sprintf("1 to %d", mostProcesses))
	check("max-queued-requests", 1 <= c.MaxQueuedRequests && c.MaxQueuedRequests <= mostQueued, c.MaxQueuedRequests, fmt.Sprintf("1 to %d", mostQueued))
	check("verify-interval", c.VerifyInterval >= 0, c.VerifyInterval, "0s or more")
	check("release-delay", c.ReleaseDelay >= 0, c.ReleaseDelay, "0s or more")
	check("plugin-timeout", c.PluginTimeout > 0, c.PluginTimeout, "more than 0s")
	check("ipam-expiration", c.IPAMExpiration > 0, c.IPAMExpiration, "more than 0s")
	_, err := endpoint.Address(c.MetricsAddress)
	return errors.Join(append(errs, err)...)
}
