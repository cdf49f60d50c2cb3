// Package nodecheck has the checks of doctor for the sidecar and its node, one in each file.
package nodecheck

import "github.com/delegated-ipam/delegated-ipam/internal/sidecar/doctor/check"

// Sidecar checks that the sidecar responds and is ready.
var Sidecar = check.Check{Name: "sidecar", Run: sidecar}

func sidecar(o *check.Observations) []check.Finding {
	if o.StatusErr != nil {
		return []check.Finding{check.Fail(
			"start the sidecar, end one that hangs, or name its socket; without its response no leases are compared, and the other findings are those of a new start",
			"%s", o.StatusErr)}
	}
	var all []check.Finding
	if o.Status.Ready {
		all = append(all, check.Pass("the sidecar responds and is ready"))
	}
	reasons := o.Status.Reasons
	if !o.Status.Ready && len(reasons) == 0 {
		reasons = []string{"no reason is reported"}
	}
	for _, reason := range reasons {
		all = append(all, check.Fail("fix the cause; `delegated-ipam status` shows each pool", "the sidecar is not ready: %s", reason))
	}
	if o.ListErr != nil {
		all = append(all, check.Fail("run doctor as an authorized user (docs/operate/security.md); no leases could be compared",
			"the attachments cannot be listed: %s", o.ListErr))
	}
	return all
}
