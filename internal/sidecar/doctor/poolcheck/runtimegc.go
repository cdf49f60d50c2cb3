package poolcheck

import (
	"slices"

	"github.com/containernetworking/cni/pkg/version"

	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/doctor/check"
)

// RuntimeGC checks that a GC by the container runtime cannot free the sidecar's addresses.
// The runtime names only its own attachments, and a plugin frees all others (CNI spec
// section 2, "GC"). It calls GC if the configuration has version 1.1.0 or above and does
// not set disableGC (libcni, GCNetworkList).
var RuntimeGC = check.Check{Name: "runtime-gc", Run: func(o *check.Observations) []check.Finding {
	var all []check.Finding
	for _, p := range o.Pools {
		if p.ConfErr == nil {
			all = append(all, runtimeGC(p))
		}
	}
	return all
}}

// minGCVersion is the first CNI version with GC.
const minGCVersion = "1.1.0"

func runtimeGC(p check.Pool) check.Finding {
	switch {
	case p.Network.DisableGC:
		return p.Pass("disableGC is set in %s", p.Network.File)
	case !hasGC(p.Network.CNIVersion):
		return p.Pass("the configuration has CNI version %s, which lacks GC", versionText(p.Network.CNIVersion))
	case len(p.Plugin.Versions) > 0 && !slices.ContainsFunc(p.Plugin.Versions, hasGC):
		return p.Pass("%s supports no CNI version with GC", p.Plugin.Plugin)
	}
	return p.Warn(`set "disableGC": true beside "name" in the file, or a cniVersion below 1.1.0`,
		"%s has CNI version %s without disableGC: a GC by the container runtime does not name the sidecar's attachments, so %s may free their addresses", p.Network.File, p.Network.CNIVersion, p.Plugin.Plugin)
}

func hasGC(v string) bool {
	ok, err := version.GreaterThanOrEqualTo(v, minGCVersion)
	return err == nil && ok
}

// versionText returns a version for a message; a configuration without one has 0.1.0 (CNI
// spec section 1, "cniVersion").
func versionText(v string) string {
	if v == "" {
		return "0.1.0 (the default)"
	}
	return v
}
