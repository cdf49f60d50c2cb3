package poolcheck

import "github.com/delegated-ipam/delegated-ipam/internal/sidecar/doctor/check"

// NodeLock checks that no other sidecar serves the same network on this node.
var NodeLock = check.Check{Name: "node-lock", Run: func(o *check.Observations) []check.Finding {
	var all []check.Finding
	for _, p := range o.Pools {
		if p.ConfErr == nil {
			all = append(all, nodeLock(p))
		}
	}
	return all
}}

func nodeLock(p check.Pool) check.Finding {
	switch {
	case p.LockHolder == "":
		return p.Pass("no sidecar in this network namespace serves network %q", p.Network.Name)
	case p.OtherHolder:
		return p.Fail("stop one of the two sidecars, or give this one its own --node-name or network",
			"network %q is served on this node by a sidecar with another state directory, or by one that hangs: %s", p.Network.Name, p.LockHolder)
	}
	return p.Pass("only the sidecar of this state directory serves network %q (%s)", p.Network.Name, p.LockHolder)
}
