package attachment

import (
	"cmp"
	"maps"
	"slices"

	"github.com/delegated-ipam/delegated-ipam/pkg/journal/record"
)

// PluginUse is a plugin whose executable recorded attachments need for their CHECK and DEL.
type PluginUse struct {
	// Pool is the attachments' pool.
	Pool string
	// Plugin is the plugin's type, Binary the recorded path of its executable.
	Plugin, Binary string
}

// Plugins returns the plugins of all recorded attachments, each once, sorted by pool,
// type and path.
func (e *Engine) Plugins() []PluginUse {
	all := map[PluginUse]bool{}
	e.mu.Lock()
	for _, a := range e.byOwner {
		if a.rec == nil || a.rec.State == record.Tombstone {
			continue
		}
		for _, c := range a.rec.Invocations {
			all[PluginUse{Pool: a.pool, Plugin: c.Plugin, Binary: c.Binary}] = true
		}
	}
	e.mu.Unlock()
	return slices.SortedFunc(maps.Keys(all), func(a, b PluginUse) int {
		return cmp.Or(cmp.Compare(a.Pool, b.Pool), cmp.Compare(a.Plugin, b.Plugin), cmp.Compare(a.Binary, b.Binary))
	})
}
