package sidecar

import (
	"net/netip"

	"github.com/delegated-ipam/delegated-ipam/internal/cniconf"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/nodelock"
)

// plugins implements attachment.Plugin with the networks of the current CNI configuration.
type plugins struct {
	*plugin.Runner
	conf  *cniconf.Watcher
	locks *nodelock.Locks
}

// Network returns the configured network of a pool. A network that another sidecar of this
// node serves is an error.
func (p plugins) Network(pool string) (call.Network, error) {
	n, err := p.conf.Network(pool)
	if err != nil {
		return call.Network{}, err
	}
	return n, p.locks.Acquire(n.Name, 0)
}

// Configured returns why a pool has had no network since the process started.
func (p plugins) Configured(pool string) error { return p.conf.Configured(pool) }

// Range compares addresses with the ranges of the network that a pool has now.
func (p plugins) Range(pool string, addrs []netip.Addr) call.Range {
	n, err := p.conf.Network(pool)
	if err != nil {
		return call.RangeUnconfigured
	}
	return p.Runner.Range(n, addrs)
}
