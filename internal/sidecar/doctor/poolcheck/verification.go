package poolcheck

import (
	"github.com/delegated-ipam/delegated-ipam/api/models"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/profile"
	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/doctor/check"
)

// Verification checks that held attachments are verified by the method of the plugin's profile.
var Verification = check.Check{Name: "verification", Run: func(o *check.Observations) []check.Finding {
	if o.Status == nil {
		return nil
	}
	var all []check.Finding
	for _, p := range o.Status.Pools {
		if p.Verification != nil {
			all = append(all, verification(p).OfPool(p.Pool))
		}
	}
	return all
}}

func verification(p *models.PoolStatus) check.Finding {
	text := "held attachments are verified by " + p.Verification.By
	if p.Verification.Reason != "" {
		text += ": " + p.Verification.Reason
	}
	lookup := profile.Lookup(check.ProfileFact(p, "lookup"))
	if p.Verification.By != plugin.VerifyByLookup && lookup != "" && lookup != profile.LookupNone {
		return check.Warn("set ipam.dataDir to the directory in which the plugin keeps its addresses and restart the sidecar, or use a --plugin-profile whose lookup is none; until then each verification runs the plugin", "%s", text)
	}
	return check.Pass("%s", text)
}
