// Package bridge keeps spec.ipam.pool of a node's CiliumNode filled with
// addresses of the sidecar, so that an unmodified cilium-agent in crd mode gets
// every address from the delegated plugin (docs/operate/bridge.md).
package bridge

import (
	"errors"

	"github.com/delegated-ipam/delegated-ipam/internal/bridge/planner"
	"github.com/delegated-ipam/delegated-ipam/internal/options"
)

// Config is what Run needs: the options of the bridge.
type Config struct{ options.Bridge }

// Settings returns how many slots the node has.
func (c Config) Settings() planner.Settings {
	return planner.Settings{
		MinAllocate: c.MinAllocate, PreAllocate: c.PreAllocate, MaxAllocate: c.MaxAllocate,
		MaxAboveWatermark: c.MaxAboveWatermark, ReleaseExcess: c.ReleaseExcess,
	}
}

// Socket returns the path of the sidecar's socket.
func (c Config) Socket() string { return options.Socket(c.Host) }

// Validate reports each option that cannot work: its name, its value and what is expected. Beyond
// options.Bridge.Validate it has the check that the planner defines.
func (c Config) Validate() error { return errors.Join(c.Bridge.Validate(), c.Settings().Validate()) }
