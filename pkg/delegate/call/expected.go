package call

// Upcoming is a call that is likely to come next.
type Upcoming struct {
	// Verb is one of those that work on a container ID.
	Verb string
	Call Call
}

// CanPrestart tells whether its process may be started before it: the plugin does nothing
// until it has its configuration.
func (e Upcoming) CanPrestart() bool { return e.Call.Invocation.Profile.WaitsForConfig }
