package poolcheck

import (
	"errors"

	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/doctor/check"
)

// Plugin checks that each pool's plugin exists, can be executed on this machine, and is not
// rejected by its profile.
var Plugin = check.Check{Name: "plugin", Run: func(o *check.Observations) []check.Finding {
	var all []check.Finding
	if o.PoolsErr != nil {
		all = append(all, check.Fail("correct the option: the sidecar does not start with it", "%s", o.PoolsErr))
	}
	for _, p := range o.Pools {
		if p.ConfErr == nil {
			all = append(all, pluginFindings(p)...)
		}
	}
	return all
}}

func pluginFindings(p check.Pool) []check.Finding {
	found := p.Pass("%s can be executed", p.Plugin.Binary)
	switch {
	case !p.Known():
		return []check.Finding{p.Fail("fix the cause", "%s", p.Plugin.Err)}
	case p.Plugin.FindErr != nil:
		found = p.Fail("install the plugin, or add its directory to --cni-bin-dir; in a pod mount it from the host", "%s", p.Plugin.FindErr)
	case !executed(p):
		found = p.Fail("install a statically linked build for this machine, with mode 0755", "%s: %s", p.Plugin.Binary, p.Plugin.VersionErr)
	}
	if p.Plugin.Err != nil && !reportedElsewhere(p) {
		return []check.Finding{found, p.Fail("fix the cause", "%s", p.Plugin.Err)}
	}
	return []check.Finding{found}
}

// executed reports whether the plugin was found and started.
func executed(p check.Pool) bool {
	var failed *call.Error
	return p.Plugin.FindErr == nil && (!errors.As(p.Plugin.VersionErr, &failed) || failed.Outcome != call.NotStarted)
}

// reportedElsewhere reports whether a step of the inspection has an error, which is
// reported with that step, and of which the error of the whole is a consequence.
func reportedElsewhere(p check.Pool) bool {
	return errors.Join(p.Plugin.FindErr, p.Plugin.VersionErr, p.Plugin.StateErr, p.Plugin.NetNSErr) != nil
}
