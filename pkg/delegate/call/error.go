package call

import "fmt"

// Outcome says what is known after a plugin call that did not succeed.
type Outcome string

const (
	// NotStarted: the plugin did not run, so it changed nothing.
	NotStarted Outcome = "not-started"
	// Refused: the plugin ran to its end and gave a well-formed CNI error.
	Refused Outcome = "refused"
	// Unknown: the plugin ran, and what it did cannot be told: it timed out,
	// was killed, crashed, or printed what is no CNI answer.
	Unknown Outcome = "unknown"
)

// Error is a plugin call that did not succeed. The engine decides by Outcome,
// Code and the profile; a person reads Error().
type Error struct {
	// Verb is ADD, DEL, CHECK, STATUS or VERSION.
	Verb string
	// Plugin is the plugin's type.
	Plugin string
	// ContainerID is the attachment's container ID; empty for STATUS and VERSION.
	ContainerID string
	Outcome     Outcome
	// Code, Msg and Details are the plugin's own (CNI spec section 5, "Error").
	// Code 0 means that it gave none.
	Code    uint
	Msg     string
	Details string
	// Stderr is the end of what the plugin wrote to its standard error.
	Stderr string
	// Err is what went wrong on our side of the call; nil for Refused.
	Err error
}

// Error names verb, plugin, container ID and the plugin's own words.
func (e *Error) Error() string {
	s := fmt.Sprintf("plugin %s %s", e.Plugin, e.Verb)
	if e.ContainerID != "" {
		s += " of container ID " + e.ContainerID
	}
	switch e.Outcome {
	case Refused:
		s += fmt.Sprintf(" refused (code %d): %s", e.Code, e.Msg)
		if e.Details != "" {
			s += "; " + e.Details
		}
	case NotStarted:
		s += fmt.Sprintf(" did not start: %v", e.Err)
	default:
		s += fmt.Sprintf(" ended with an unknown outcome: %v", e.Err)
		if e.Msg != "" {
			s += ": " + e.Msg
		}
	}
	if e.Stderr != "" {
		s += fmt.Sprintf(" (stderr: %s)", e.Stderr)
	}
	return s
}

// Unwrap returns what went wrong on our side of the call.
func (e *Error) Unwrap() error { return e.Err }
