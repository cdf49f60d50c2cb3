package app

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/delegated-ipam/delegated-ipam/pkg/restapi"
)

// movedPluginsPatience is how long the folders of plugins may hang before they count as
// unreadable.
const movedPluginsPatience = 30 * time.Second

// askMovedPlugins looks for the executable of each plugin that recorded attachments are
// verified and released with, and returns those that are not where they were. After a
// change of --cni-bin-dir or of the configuration they are others than the pools' own.
func (r *reporter) askMovedPlugins() []restapi.MovedPlugin {
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

func newMovedPlugins(r *reporter) *question[[]restapi.MovedPlugin] {
	return &question[[]restapi.MovedPlugin]{
		ask:      r.askMovedPlugins,
		fresh:    func(all []restapi.MovedPlugin) time.Duration { return freshFor(!slices.ContainsFunc(all, missing)) },
		patience: movedPluginsPatience,
		running:  &r.asking,
	}
}

func missing(p restapi.MovedPlugin) bool { return p.Error != "" }

// movedPlugins returns the plugins that recorded attachments do not find where they were,
// and why some cannot be verified and released.
func (r *reporter) movedPlugins(ctx context.Context) (all []restapi.MovedPlugin, reasons []string, is standing) {
	all, is = r.moved.answer(ctx)
	if is != answered {
		reasons = append(reasons, "the folders of plugins do not answer whether the plugins of held attachments are there")
	}
	for _, p := range all {
		if missing(p) {
			reasons = append(reasons, fmt.Sprintf("pool %q: attachments cannot be verified or released: %s", p.Pool, p.Error))
		}
	}
	return all, reasons, is
}
