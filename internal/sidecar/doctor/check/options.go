package check

// Options are the options of serve that doctor uses.
type Options struct {
	// Invalid is why those of doctor's own flags, environment and --config-dir cannot be
	// used, one error for each option. Unusable means that no configuration could be made
	// of them.
	Invalid  []error
	Unusable bool
	// Unknown are environment variables that look like options.
	Unknown []string
	// Skipped are the files of --config-dir that have no effect.
	Skipped []string
	// Differing are the options whose values differ from the sidecar's.
	Differing []Difference
	// FromSidecar means that the checks use the sidecar's options.
	FromSidecar bool
}

// Difference is an option whose value differs from the sidecar's.
type Difference struct {
	Option string
	// Here and There are the values of doctor and of the sidecar, HereFrom and ThereFrom
	// their sources (OptionValue of the API).
	Here, HereFrom, There, ThereFrom string
}
