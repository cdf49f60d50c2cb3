package app

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/delegated-ipam/delegated-ipam/pkg/cachedprobe"
	"github.com/delegated-ipam/delegated-ipam/pkg/restapi"
)

// pluginDirsTimeout is how long the lookup of executables may take before it counts as
// failed.
const pluginDirsTimeout = 30 * time.Second

func (r *reporter) newMovedPluginsProbe() *cachedprobe.Probe[[]restapi.MovedPlugin] {
	return &cachedprobe.Probe[[]restapi.MovedPlugin]{
		Run:        r.findMovedPlugins,
		TTL:        func(all []restapi.MovedPlugin) time.Duration { return ttl(!slices.ContainsFunc(all, missing)) },
		StuckAfter: pluginDirsTimeout,
		Running:    &r.probes,
	}
}

// findMovedPlugins returns the plugins whose executables recorded attachments name and
// that are elsewhere now or missing. After a change of --cni-bin-dir or of the CNI
// configuration, attachments have other plugins than their pools.
func (r *reporter) findMovedPlugins() []restapi.MovedPlugin {
	var all []restapi.MovedPlugin
	for _, use := range r.engine.Plugins() {
		executable, err := r.runner.Executable(use.Plugin, use.Binary)
		moved := restapi.MovedPlugin{Pool: use.Pool, Plugin: use.Plugin, Binary: use.Binary, Executable: executable}
		if err != nil {
			moved.Error = err.Error()
		}
		if executable != use.Binary {
			all = append(all, moved)
		}
	}
	return all
}

func missing(p restapi.MovedPlugin) bool { return p.Error != "" }

// movedPlugins returns the moved plugins, and why some attachments cannot be verified or
// released.
func (r *reporter) movedPlugins(ctx context.Context) (all []restapi.MovedPlugin, reasons []string, state cachedprobe.State) {
	all, state = r.moved.Result(ctx)
	if state != cachedprobe.Fresh {
		reasons = append(reasons, "plugin directories do not respond: the plugins of held attachments cannot be looked up")
	}
	for _, p := range all {
		if missing(p) {
			reasons = append(reasons, fmt.Sprintf("pool %q: attachments cannot be verified or released: %s", p.Pool, p.Error))
		}
	}
	return all, reasons, state
}
