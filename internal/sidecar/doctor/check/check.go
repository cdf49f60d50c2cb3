// Package check defines a check of doctor: the observations that it reads, with the
// functions that collect them, and the findings that it returns.
package check

// Check is one check of doctor.
type Check struct {
	// Name is shown with each finding and has a row in docs/operate/doctor.md.
	Name string
	// Run returns the findings, at least one with the state OK without a problem, none if the
	// observations that it needs are missing. It may read more of the node, and changes
	// nothing.
	Run func(*Observations) []Finding
}

// Run runs checks in their order and returns all their findings.
func Run(checks []Check, o *Observations) []Finding {
	var all []Finding
	for _, c := range checks {
		for _, f := range c.Run(o) {
			f.Check = c.Name
			all = append(all, f)
		}
	}
	return all
}
