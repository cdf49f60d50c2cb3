package check

import (
	"context"
	"encoding/json"
	"errors"
	"path/filepath"

	"github.com/delegated-ipam/delegated-ipam/api/models"
	"github.com/delegated-ipam/delegated-ipam/internal/cniconf"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/nodelock"
)

// Pool is one pool as a start of the sidecar would find it.
type Pool struct {
	// Name is the name of the pool.
	Name string
	// Network is its configuration; ConfErr is why there is none.
	Network call.Network
	ConfErr error
	// NetNSErr is why --cni-netns is rejected.
	NetNSErr error
	// Plugin is the plugin of the network.
	Plugin plugin.Inspection
	// LockHolder describes the process that holds the node lock of the network (nodelock.Holder);
	// empty if no process does.
	LockHolder string
	// OtherHolder means that the holder of the node lock, if there is one, is not the sidecar with
	// this state directory.
	OtherHolder bool
	// Served is the network with which the running sidecar serves the pool; empty for none.
	Served string
	// StateDir is the directory to which the plugin writes. Its Path is empty if the plugin
	// keeps no state in files; nothing else is set if it is relative.
	StateDir Dir
}

// Known reports whether the plugin of the pool and its profile are known.
func (p Pool) Known() bool { return p.ConfErr == nil && p.Plugin.Profile.Type != "" }

// Pass returns a finding of the pool that needs no action.
func (p Pool) Pass(format string, args ...any) Finding {
	return Pass(format, args...).OfPool(p.Name)
}

// Warn returns a warning of the pool.
func (p Pool) Warn(remedy, format string, args ...any) Finding {
	return Warn(remedy, format, args...).OfPool(p.Name)
}

// Fail returns an error of the pool.
func (p Pool) Fail(remedy, format string, args ...any) Finding {
	return Fail(remedy, format, args...).OfPool(p.Name)
}

// collectPools inspects each pool, in the order in which pools are served, with the code that the
// sidecar runs before its first ADD. It changes nothing and calls no plugin verb but VERSION. status
// is the sidecar's, nil for none. The error is why no plugin can be run with these options.
func collectPools(ctx context.Context, c Config, status *models.DelegatedIPAMStatus) ([]Pool, error) {
	netnsErr := plugin.CheckNetNS(c.Plugin.NetNS)
	if netnsErr != nil {
		c.Plugin.NetNS = "" // the rest of the result does not depend on it
	}
	runner, runnerErr := plugin.New(c.Plugin)
	conf, confErr := cniconf.New(c.Conf)
	if err := errors.Join(runnerErr, confErr); err != nil {
		return nil, err
	}
	var pools []Pool
	for _, name := range conf.Pools() {
		p := Pool{Name: name, NetNSErr: netnsErr, Served: served(status, name)}
		if p.Network, p.ConfErr = conf.Network(name); p.ConfErr == nil {
			p.LockHolder = nodelock.Holder(c.NodeName, p.Network.Name)
			p.Plugin = runner.Inspect(ctx, p.Network)
		}
		p.OtherHolder = !nodelock.HolderHas(p.LockHolder, c.StateDir)
		p.StateDir = collectPluginStateDir(p)
		pools = append(pools, p)
	}
	return pools, nil
}

// collectPluginStateDir describes the directory of a plugin; host-local has one for each
// network.
func collectPluginStateDir(p Pool) Dir {
	dir := p.Plugin.StateDir
	if dir == "" || !filepath.IsAbs(dir) {
		return Dir{Path: dir}
	}
	if p.Plugin.Plugin == hostLocal {
		dir = filepath.Join(dir, p.Network.Name)
	}
	return CollectDir(dir)
}

// served returns the network with which the sidecar serves a pool.
func served(status *models.DelegatedIPAMStatus, pool string) string {
	if status == nil {
		return ""
	}
	for _, p := range status.Pools {
		if p.Pool == pool {
			return p.Network
		}
	}
	return ""
}

// status returns the pool as the sidecar would report it.
func (p Pool) status() *models.PoolStatus {
	status := &models.PoolStatus{
		Pool: p.Name, Network: p.Network.Name, File: p.Network.File,
		Plugin: p.Plugin.Plugin, Profile: p.Plugin.Profile.Type,
	}
	// A profile is made of JSON, so it can be encoded.
	if text, err := json.Marshal(p.Plugin.Profile); err == nil {
		_ = json.Unmarshal(text, &status.ProfileFacts)
	}
	return status
}

// ProfileFact returns a fact of a pool's profile that is a string; empty for none.
func ProfileFact(p *models.PoolStatus, name string) string {
	text, _ := p.ProfileFacts[name].(string)
	return text
}
