package app

import (
	"context"

	"github.com/delegated-ipam/delegated-ipam/pkg/cniconf"
	"github.com/delegated-ipam/delegated-ipam/pkg/delegate"
	"github.com/delegated-ipam/delegated-ipam/pkg/delegate/call"
)

// plugins is what the engine sees as its plugin: the runner of plugins, which
// gets the pool's network from the CNI configuration as it is now.
type plugins struct {
	*delegate.Runner
	conf   *cniconf.Watcher
	guards *guards
}

// NewInvocation returns today's invocation for a pool. A network that another
// sidecar of this node serves is refused.
func (p plugins) NewInvocation(ctx context.Context, pool, owner string, id func(network string) (string, error)) (call.Invocation, error) {
	n, err := p.conf.Network(pool)
	if err != nil {
		return call.Invocation{}, err
	}
	if err := p.guards.take(n.Name, 0); err != nil {
		return call.Invocation{}, err
	}
	containerID, err := id(n.Name)
	if err != nil {
		return call.Invocation{}, err
	}
	return p.Runner.NewInvocation(ctx, network(n), containerID, owner)
}

// network is what the runner needs of a configuration.
func network(n cniconf.Network) delegate.Network {
	return delegate.Network{Name: n.Name, File: n.File, CNIVersion: n.CNIVersion, PluginConfig: n.PluginConfig, DisableCheck: n.DisableCheck}
}
