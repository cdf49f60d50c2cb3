package sidecar

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/cachedprobe"
	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/httpapi"
)

// pluginDirsTimeout is how long the lookup of executables may take before it counts as
// failed.
const pluginDirsTimeout = 30 * time.Second

// movedPlugin is a plugin that is elsewhere now or missing.
type movedPlugin struct {
	httpapi.MovedPlugin
	// cause is the end of Error, which is also the error of a pool with the same plugin.
	cause string
}

func (r *reporter) newMovedPluginsProbe() *cachedprobe.Probe[[]movedPlugin] {
	return &cachedprobe.Probe[[]movedPlugin]{
		Run:        r.findMovedPlugins,
		TTL:        func(all []movedPlugin) time.Duration { return ttl(!slices.ContainsFunc(all, movedPlugin.missing)) },
		StuckAfter: pluginDirsTimeout,
		Running:    &r.probes,
	}
}

// findMovedPlugins returns the plugins whose executables recorded attachments name and
// that are elsewhere now or missing. After a change of --cni-bin-dir or of the CNI
// configuration, attachments have other plugins than their pools.
func (r *reporter) findMovedPlugins() []movedPlugin {
	var all []movedPlugin
	for _, use := range r.engine.Plugins() {
		executable, err := r.runner.Executable(use.Plugin, use.Binary)
		moved := movedPlugin{MovedPlugin: httpapi.MovedPlugin{Pool: use.Pool, Plugin: use.Plugin, Binary: use.Binary, Executable: executable}}
		if err != nil {
			moved.Error = err.Error()
		}
		if cause := errors.Unwrap(err); cause != nil {
			moved.cause = cause.Error()
		}
		if executable != use.Binary {
			all = append(all, moved)
		}
	}
	return all
}

func (p movedPlugin) missing() bool { return p.Error != "" }

// addMovedPlugins adds the moved plugins to a report, and why some attachments cannot be verified
// or released.
func (r *reporter) addMovedPlugins(ctx context.Context, rep *httpapi.Report) cachedprobe.State {
	all, state := r.moved.Result(ctx)
	if state != cachedprobe.Fresh {
		rep.Reasons = append(rep.Reasons, "plugin directories do not respond: the plugins of held attachments cannot be looked up")
	}
	for _, p := range all {
		rep.MovedPlugins = append(rep.MovedPlugins, p.MovedPlugin)
		if p.missing() {
			rep.Reasons = append(rep.Reasons, p.reason(rep.Reasons))
		}
	}
	return state
}

// reason returns why attachments with a missing plugin cannot be verified or released, without the
// cause if one of the other reasons has it.
func (p movedPlugin) reason(others []string) string {
	text := p.Error
	if slices.ContainsFunc(others, func(other string) bool { return strings.HasSuffix(other, p.cause) }) {
		text = strings.TrimSuffix(text, ": "+p.cause)
	}
	return fmt.Sprintf("pool %q: attachments cannot be verified or released: %s", p.Pool, text)
}
