package doctor

import (
	"slices"

	"github.com/containernetworking/cni/pkg/version"
)

// gcSince is the CNI version that brought GC.
const gcSince = "1.1.0"

// gc is whether a GC of the container runtime could free what is ours. The runtime
// names only the attachments that it made itself, and a plugin frees the others (CNI
// spec section 2, "GC"). It is called if the configuration has version 1.1.0 or above
// and does not set disableGC (libcni, GCNetworkList).
func (p Pool) gc() []Finding {
	switch {
	case p.Network.DisableGC:
		return []Finding{p.finding(CheckGC, OK, "", "disableGC is set")}
	case !hasGC(p.Network.CNIVersion):
		return []Finding{p.finding(CheckGC, OK, "", "the configuration has CNI version %s, which has no GC", orNone(p.Network.CNIVersion))}
	case len(p.Plugin.Versions) > 0 && !slices.ContainsFunc(p.Plugin.Versions, hasGC):
		return []Finding{p.finding(CheckGC, OK, "", "%s knows no CNI version that has GC", p.Plugin.Plugin)}
	}
	return []Finding{p.finding(CheckGC, Warning, `set "disableGC": true beside "name" in the file, or a cniVersion below 1.1.0`,
		"%s has CNI version %s without disableGC: a GC by the container runtime does not name our attachments, so %s may free their addresses", p.Network.File, p.Network.CNIVersion, p.Plugin.Plugin)}
}

func hasGC(v string) bool {
	ok, err := version.GreaterThanOrEqualTo(v, gcSince)
	return err == nil && ok
}

// orNone is a version as a person reads it; a configuration without one has 0.1.0
// (CNI spec section 1, "cniVersion").
func orNone(v string) string {
	if v == "" {
		return "0.1.0 (none is named)"
	}
	return v
}
