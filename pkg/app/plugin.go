package app

import (
	"github.com/delegated-ipam/delegated-ipam/pkg/cniconf"
	"github.com/delegated-ipam/delegated-ipam/pkg/delegate"
	"github.com/delegated-ipam/delegated-ipam/pkg/delegate/call"
)

// plugins implements attachment.Plugin with the networks of the current CNI configuration.
type plugins struct {
	*delegate.Runner
	conf   *cniconf.Watcher
	guards *guards
}

// Network returns the configured network of a pool. A network that another sidecar of this node
// serves is rejected.
func (p plugins) Network(pool string) (call.Network, error) {
	n, err := p.conf.Network(pool)
	if err != nil {
		return call.Network{}, err
	}
	return network(n), p.guards.take(n.Name, 0)
}

// network is what the runner needs of a configuration.
func network(n cniconf.Network) call.Network {
	return call.Network{Name: n.Name, File: n.File, CNIVersion: n.CNIVersion, PluginConfig: n.PluginConfig, DisableCheck: n.DisableCheck}
}
