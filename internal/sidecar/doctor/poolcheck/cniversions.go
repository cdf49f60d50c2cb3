package poolcheck

import (
	"strings"

	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/doctor/check"
)

// CNIVersions checks that each pool's plugin and the sidecar have a CNI version in common.
var CNIVersions = check.Check{Name: "cni-versions", Run: func(o *check.Observations) []check.Finding {
	var all []check.Finding
	for _, p := range o.Pools {
		if p.Known() && executed(p) {
			all = append(all, cniVersions(p))
		}
	}
	return all
}}

func cniVersions(p check.Pool) check.Finding {
	if p.Plugin.VersionErr != nil {
		return p.Fail("install a plugin that responds to VERSION with a version that delegated-ipam supports", "%s: %s", p.Plugin.Binary, p.Plugin.VersionErr)
	}
	return p.Pass("CNI version %s is used; %s supports %s", p.Plugin.CNIVersion, p.Plugin.Plugin, strings.Join(p.Plugin.Versions, ", "))
}
