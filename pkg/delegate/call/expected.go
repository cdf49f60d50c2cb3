package call

// Expected is a call that is likely to come next.
type Expected struct {
	// Verb is one of those that work on a container ID.
	Verb string
	Call Call
}

// CanStandBy tells whether its process may be started before it: the plugin does nothing
// until it has its configuration.
func (e Expected) CanStandBy() bool { return e.Call.Context.Profile.WaitsForConfig }
