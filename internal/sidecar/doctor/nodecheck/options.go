package nodecheck

import "github.com/delegated-ipam/delegated-ipam/internal/sidecar/doctor/check"

// Options checks that the options are valid and equal to the sidecar's.
var Options = check.Check{Name: "options", Run: options}

func options(o *check.Observations) []check.Finding {
	var all []check.Finding
	for _, err := range o.Options.Invalid {
		remedy := "correct the option: the sidecar does not start with it"
		if o.Options.Unusable && !o.Options.FromSidecar {
			remedy += "; the checks that depend on the options were skipped"
		}
		all = append(all, check.Fail(remedy, "%s", err))
	}
	for _, name := range o.Options.Unknown {
		all = append(all, check.Warn("correct its name or remove it",
			"environment variable %s is not an option of delegated-ipam and has no effect", name))
	}
	for _, path := range o.Options.Skipped {
		all = append(all, check.Warn("remove it", "%s is a directory or a backup file in --config-dir, and has no effect", path))
	}
	for _, d := range o.Options.Differing {
		all = append(all, check.Warn("restart the sidecar to apply the new value; doctor uses the sidecar's",
			"--%s is %q here (%s), and the sidecar runs with %q (%s)", d.Option, d.Here, d.HereFrom, d.There, d.ThereFrom))
	}
	switch {
	case len(all) > 0:
		return all
	case o.Options.FromSidecar:
		return []check.Finding{check.Pass("the options of the running sidecar are used")}
	}
	return []check.Finding{check.Pass("the options that serve would have here are used: flags, environment and --config-dir of doctor")}
}
