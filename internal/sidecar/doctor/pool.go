package doctor

import (
	"context"
	"errors"
	"path/filepath"

	"github.com/delegated-ipam/delegated-ipam/internal/cniconf"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
	"github.com/delegated-ipam/delegated-ipam/internal/sidecar"
	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/nodelock"
)

// pool is one pool as a start of the sidecar would find it.
type pool struct {
	name string
	// network is its configuration; confErr is why there is none.
	network call.Network
	confErr error
	// netNSErr is why --cni-netns is rejected.
	netNSErr error
	plugin   plugin.Inspection
	// lockHolder describes the process that holds the node lock of the network (nodelock.Holder);
	// empty if no process does.
	lockHolder string
	// stateDir is the directory to which the plugin writes. Its path is empty if the plugin
	// keeps no state in files; nothing else is set if it is relative.
	stateDir directory
	store    store
}

// configured reports whether the pool has a network.
func (p pool) configured() bool { return p.confErr == nil }

// known reports whether the plugin of the pool and its profile are known.
func (p pool) known() bool { return p.confErr == nil && p.plugin.Profile.Type != "" }

// executed reports whether the plugin is known, was found and started.
func (p pool) executed() bool {
	failed, ok := errors.AsType[*call.Error](p.plugin.VersionErr)
	return p.known() && p.plugin.FindErr == nil && (!ok || failed.Outcome != call.NotStarted)
}

// collectPools inspects each pool, in the order in which pools are served, with the code that the
// sidecar runs before its first ADD. It changes nothing and calls no plugin verb but VERSION. The
// error is why no plugin can be run with these options.
func collectPools(ctx context.Context, c sidecar.Config) ([]pool, error) {
	o := c.PluginOptions()
	netNSErr := plugin.CheckNetNS(o.NetNS)
	if netNSErr != nil {
		o.NetNS = "" // the rest of the result does not depend on it
	}
	runner, runnerErr := plugin.New(o)
	conf, confErr := cniconf.New(c.NetworkOptions())
	if err := errors.Join(runnerErr, confErr); err != nil {
		return nil, err
	}
	var pools []pool
	for _, name := range conf.Pools() {
		p := pool{name: name, netNSErr: netNSErr}
		if p.network, p.confErr = conf.Network(name); p.confErr == nil {
			p.lockHolder = nodelock.Holder(c.NodeName, p.network.Name)
			p.plugin = runner.Inspect(ctx, p.network)
		}
		p.stateDir = directory{path: p.plugin.StateDir}
		if p.hasStore() { // host-local has a directory for each network
			p.stateDir.path = filepath.Join(p.stateDir.path, p.network.Name)
		}
		if filepath.IsAbs(p.stateDir.path) {
			p.stateDir = collectDirectory(p.stateDir.path)
		}
		pools = append(pools, p)
	}
	return pools, nil
}
