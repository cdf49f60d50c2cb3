package doctor

import "fmt"

// Options is what was seen of the options.
type Options struct {
	// Refused is why doctor's own ones, with which `serve` would start here, cannot be
	// used, one error for each; Unusable tells that there are none to go by.
	Refused  []error
	Unusable bool
	// Unknown are variables of the environment that look like options and are none.
	Unknown []string
	// Differing are options that the sidecar has otherwise than doctor was told.
	Differing []Difference
	// FromSidecar tells that what is looked at comes from the sidecar's own options.
	FromSidecar bool
}

// Difference is one option that the sidecar has otherwise than doctor.
type Difference struct {
	Option string
	// Here and There are the values of doctor and the sidecar, HereFrom and ThereFrom
	// where each came from (OptionValue of the API).
	Here, HereFrom, There, ThereFrom string
}

func (o Options) findings() []Finding {
	var all []Finding
	add := func(state State, do, format string, args ...any) {
		all = append(all, Finding{Check: CheckOptions, State: state, Seen: fmt.Sprintf(format, args...), Do: do})
	}
	for _, err := range o.Refused {
		do := "mend the option: with it the sidecar does not start"
		if o.Unusable && !o.FromSidecar {
			do += "; nothing that depends on the options was looked at"
		}
		add(Error, do, "%s", err)
	}
	for _, name := range o.Unknown {
		add(Warning, "correct its name or take it away", "the environment variable %s is no option of delegated-ipam, and has no effect", name)
	}
	for _, d := range o.Differing {
		add(Warning, "restart the sidecar if it is to take the new value; doctor goes by the sidecar's",
			"--%s is %q here (%s), and the sidecar runs with %q (%s)", d.Option, d.Here, d.HereFrom, d.There, d.ThereFrom)
	}
	if len(all) > 0 {
		return all
	}
	seen := "those that serve would have here: flags, environment and --config-dir of doctor"
	if o.FromSidecar {
		seen = "those that the sidecar runs with"
	}
	return []Finding{{Check: CheckOptions, State: OK, Seen: seen}}
}
