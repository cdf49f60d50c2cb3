package check

import (
	"context"
	"encoding/json"
	"path/filepath"

	"github.com/delegated-ipam/delegated-ipam/api/models"
	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/inspect"
	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/nodelock"
)

// Pool is one pool with its plugin.
type Pool struct {
	inspect.Pool
	// Served is the network with which the running sidecar serves the pool; empty for none.
	Served string
	// OtherHolder means that the holder of the node lock, if there is one, is not the
	// sidecar with this state directory.
	OtherHolder bool
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

// collectPools inspects the pools of a start with c. status is the sidecar's, nil for none.
func collectPools(ctx context.Context, c Config, status *models.DelegatedIPAMStatus) ([]Pool, error) {
	inspected, err := inspect.Pools(ctx, c.Inspect)
	var pools []Pool
	for _, p := range inspected {
		pools = append(pools, Pool{
			Pool: p, Served: served(status, p.Name),
			OtherHolder: !nodelock.HolderHas(p.LockHolder, c.StateDir),
			StateDir:    collectPluginStateDir(p),
		})
	}
	return pools, err
}

// collectPluginStateDir describes the directory of a plugin; host-local has one for each
// network.
func collectPluginStateDir(p inspect.Pool) Dir {
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
