package nodecheck

import "github.com/delegated-ipam/delegated-ipam/internal/sidecar/doctor/check"

// HeldPlugins checks that the plugins of recorded attachments exist, so that these can be
// verified and released.
var HeldPlugins = check.Check{Name: "held-plugins", Run: heldPlugins}

func heldPlugins(o *check.Observations) []check.Finding {
	if o.Status == nil {
		return nil
	}
	var all []check.Finding
	for _, p := range o.Status.MovedPlugins {
		f := check.Pass("%s is not used any more; %s is used in its place", p.Binary, p.Executable)
		if p.Error != "" {
			f = check.Fail("install the plugin again, or add its directory to --cni-bin-dir; until then none of its attachments is verified or released", "%s", p.Error)
		}
		all = append(all, f.OfPool(p.Pool))
	}
	if len(all) == 0 {
		all = []check.Finding{check.Pass("the executables of all recorded attachments exist")}
	}
	return all
}
