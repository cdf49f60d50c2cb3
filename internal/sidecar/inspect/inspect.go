// Package inspect reports what a start of the sidecar would find now: the CNI
// configuration of each pool, its plugin, and the holder of its node lock.
package inspect

import (
	"context"
	"errors"

	"github.com/delegated-ipam/delegated-ipam/internal/cniconf"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/nodelock"
)

// Options are those options of the sidecar on which the result depends.
type Options struct {
	// NodeName is the node's name (--node-name).
	NodeName string
	// Conf locates the CNI configurations. Its Log may be nil.
	Conf cniconf.Options
	// Plugin configures how plugins are found and run.
	Plugin plugin.Options
}

// Pool is one pool as a start of the sidecar would find it.
type Pool struct {
	// Name is the name of the pool.
	Name string
	// Network is its configuration; ConfErr is why there is none.
	Network cniconf.Network
	ConfErr error
	// NetNSErr is why --cni-netns is rejected.
	NetNSErr error
	// LockHolder describes the process that holds the node lock of the network
	// (nodelock.Holder); empty if no process does.
	LockHolder string
	// Plugin is the plugin of the network.
	Plugin plugin.Inspection
}

// Pools inspects each pool, in the order in which pools are served, with the code that
// the sidecar runs before its first ADD. It changes nothing and calls no plugin verb but
// VERSION. The error is why no plugin can be run with these options.
func Pools(ctx context.Context, o Options) ([]Pool, error) {
	netnsErr := plugin.CheckNetNS(o.Plugin.NetNS)
	if netnsErr != nil {
		o.Plugin.NetNS = "" // the rest of the result does not depend on it
	}
	runner, runnerErr := plugin.New(o.Plugin)
	conf, confErr := cniconf.New(o.Conf)
	if err := errors.Join(runnerErr, confErr); err != nil {
		return nil, err
	}
	var pools []Pool
	for _, name := range conf.Pools() {
		p := Pool{Name: name, NetNSErr: netnsErr}
		if p.Network, p.ConfErr = conf.Network(name); p.ConfErr == nil {
			p.LockHolder = nodelock.Holder(o.NodeName, p.Network.Name)
			p.Plugin = runner.Inspect(ctx, Network(p.Network))
		}
		pools = append(pools, p)
	}
	return pools, nil
}

// Network returns the part of a CNI configuration that the plugin runner uses.
func Network(n cniconf.Network) call.Network {
	return call.Network{Name: n.Name, File: n.File, Shared: n.Shared, CNIVersion: n.CNIVersion, PluginConfig: n.PluginConfig, DisableCheck: n.DisableCheck}
}
