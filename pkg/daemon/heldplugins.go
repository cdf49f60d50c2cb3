package daemon

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/delegated-ipam/delegated-ipam/pkg/restapi"
)

// heldPluginsPatience is how long the folders of plugins may hang before they count as
// unreadable.
const heldPluginsPatience = 30 * time.Second

// askHeldPlugins looks for the executable of each plugin that recorded attachments are
// verified and released with. Those of the pools' configurations are looked for with
// their pools; after a change of --cni-bin-dir or of the configuration these are others.
func (r *reporter) askHeldPlugins() []restapi.HeldPlugin {
	var all []restapi.HeldPlugin
	for _, use := range r.engine.Plugins() {
		held := restapi.HeldPlugin{Pool: use.Pool, Plugin: use.Plugin, Binary: use.Binary}
		var err error
		if held.Executable, err = r.runner.Executable(use.Plugin, use.Binary); err != nil {
			held.Error = err.Error()
		}
		all = append(all, held)
	}
	return all
}

func newHeldPlugins(r *reporter) *question[[]restapi.HeldPlugin] {
	return &question[[]restapi.HeldPlugin]{
		ask:      r.askHeldPlugins,
		fresh:    func(all []restapi.HeldPlugin) time.Duration { return freshFor(!slices.ContainsFunc(all, missing)) },
		patience: heldPluginsPatience,
		running:  &r.asking,
	}
}

func missing(p restapi.HeldPlugin) bool { return p.Error != "" }

// heldPluginsAnswer returns the plugins of recorded attachments, and why some cannot be
// verified and released.
func (r *reporter) heldPluginsAnswer(ctx context.Context) (all []restapi.HeldPlugin, reasons []string, is standing) {
	all, is = r.held.answer(ctx)
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
