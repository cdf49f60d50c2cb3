package poolcheck

import "github.com/delegated-ipam/delegated-ipam/internal/sidecar/doctor/check"

// NetNS checks that plugins do not work in the sidecar's own network namespace.
var NetNS = check.Check{Name: "netns", Run: func(o *check.Observations) []check.Finding {
	var all []check.Finding
	for _, p := range o.Pools {
		if p.Known() {
			all = append(all, netNS(p))
		}
	}
	return all
}}

func netNS(p check.Pool) check.Finding {
	switch {
	case p.NetNSErr != nil:
		return p.Fail("leave --cni-netns unset, or correct it", "%s", p.NetNSErr)
	case p.Plugin.NetNSErr != nil:
		return p.Fail("create the namespace, or name it with --cni-netns (docs/reference/plugins.md, Network namespaces)", "%s", p.Plugin.NetNSErr)
	}
	return p.Pass("CNI_NETNS is %q, which is not the sidecar's own", p.Plugin.NetNS)
}
