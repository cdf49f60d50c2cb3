package plugin

import (
	"bytes"
	"net/netip"
	"slices"

	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/hostlocal"
)

// Range compares addresses with the ranges of a network's configuration. The ranges are known only of
// plugins that are configured as host-local: those whose profile has its lookup.
func (r *Runner) Range(n call.Network, addrs []netip.Addr) call.Range {
	last, _ := r.ranges.Load(n.Name)
	parsed, ok := last.(parsedRanges)
	if !ok || !bytes.Equal(parsed.of, n.PluginConfig) {
		profiles, err := r.opts.Profiles()
		if err != nil {
			return ""
		}
		parsed = parsedRanges{of: n.PluginConfig}
		if profiles.For(n.IPAMType).LikeHostLocal() {
			parsed.config, err = hostlocal.ParseConfig(n.PluginConfig)
			parsed.known = err == nil
		}
		r.ranges.Store(n.Name, parsed)
	}
	if parsed.known && slices.ContainsFunc(addrs, func(ip netip.Addr) bool { return !parsed.config.Contains(ip) }) {
		return call.RangeOutside
	}
	return ""
}

// parsedRanges are the ranges of the plugin object of.
type parsedRanges struct {
	of     []byte
	config hostlocal.Config
	known  bool
}
