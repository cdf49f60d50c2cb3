package plugin

import (
	"bytes"
	"net/netip"
	"slices"
	"sync"

	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/hostlocal"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/profile"
)

// Range compares addresses with the ranges of a network's configuration. The ranges are known only of
// plugins that are configured as host-local: those whose profile has its lookup.
func (r *Runner) Range(n call.Network, addrs []netip.Addr) call.Range {
	r.ranges.mu.Lock()
	defer r.ranges.mu.Unlock()
	last, ok := r.ranges.known[n.Name]
	if !ok || !bytes.Equal(last.config, n.PluginConfig) {
		profiles, err := r.opts.Profiles()
		if err != nil {
			return ""
		}
		last = parsedRanges{n.PluginConfig, parseRanges(n, profiles)}
		r.ranges.known[n.Name] = last
	}
	if last.ranges == nil || !slices.ContainsFunc(addrs, func(ip netip.Addr) bool { return !last.ranges.Contains(ip) }) {
		return ""
	}
	return call.RangeOutside
}

// rangeCache has the ranges of each network's last configuration.
type rangeCache struct {
	mu    sync.Mutex
	known map[string]parsedRanges
}

// parsedRanges are the ranges of a configuration; nil if they are not known.
type parsedRanges struct {
	config []byte
	ranges *hostlocal.Config
}

// parseRanges returns the ranges of a network, nil if they are not known.
func parseRanges(n call.Network, profiles profile.Set) *hostlocal.Config {
	object, err := parseNetwork(n)
	if err != nil {
		return nil
	}
	pluginType, err := object.ipamType()
	if err != nil || !profiles.For(pluginType).LikeHostLocal() {
		return nil
	}
	config, err := hostlocal.ParseConfig(n.PluginConfig)
	if err != nil {
		return nil
	}
	return &config
}
