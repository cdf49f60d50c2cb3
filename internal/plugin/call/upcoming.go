package call

// Upcoming is a call that is likely to come next, and whose process may be started ahead of it.
type Upcoming struct {
	// Verb is one that works on a container ID.
	Verb string
	// Call is the call as it will be made.
	Call Call
}

// CanPrestart reports whether the process may be started ahead of the call: the plugin does nothing
// before it has its configuration.
func (u Upcoming) CanPrestart() bool { return u.Call.Invocation.Profile.WaitsForConfig }
