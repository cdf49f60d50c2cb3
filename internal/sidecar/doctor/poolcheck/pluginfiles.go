package poolcheck

import (
	"strings"

	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/doctor/check"
)

// PluginFiles checks that the files exist without which the plugin does not work, by its profile
// (docs/reference/profiles.md, Profile fields, requires).
var PluginFiles = check.Check{Name: "plugin-files", Run: func(o *check.Observations) []check.Finding {
	var all []check.Finding
	for _, p := range o.Pools {
		if p.Known() {
			all = append(all, pluginFiles(p)...)
		}
	}
	return all
}}

func pluginFiles(p check.Pool) []check.Finding {
	var all []check.Finding
	for _, m := range p.Plugin.Missing {
		key := ""
		if m.Key != "" {
			key = " (or name another with ipam." + m.Key + ")"
		}
		all = append(all, p.Fail("create the "+string(m.Kind)+", or mount it into the container in which the plugin runs"+key,
			"plugin %s needs a %s that does not exist: %s; %s", p.Plugin.Plugin, m.Kind, strings.Join(m.Paths, " or "), m.Why))
	}
	if len(all) == 0 {
		all = append(all, p.Pass("nothing that the plugin needs is missing, by its profile"))
	}
	return all
}
