package call

// Expected is a call that is likely to come next.
type Expected struct {
	// Verb is one of those that work on a container ID.
	Verb string
	Call Call
}
