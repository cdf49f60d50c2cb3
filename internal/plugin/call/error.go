package call

import (
	"errors"
	"fmt"

	"github.com/delegated-ipam/delegated-ipam/internal/plugin/profile"
)

// Outcome is what is known after a plugin call that did not succeed.
type Outcome string

const (
	// NotStarted: the plugin did not run, so nothing changed.
	NotStarted Outcome = "not-started"
	// Refused: the plugin ran to its end and returned a well-formed CNI error.
	Refused Outcome = "refused"
	// Unknown: the plugin ran, and may or may not have done its work: it timed out, was killed,
	// crashed, or printed something other than a CNI result or error.
	Unknown Outcome = "unknown"
)

// Error is a plugin call that did not succeed. The engine decides by Outcome, Code and the profile;
// Error() is the text for users.
type Error struct {
	// Verb is ADD, DEL, CHECK, STATUS or VERSION.
	Verb string
	// Plugin is the plugin's type, and ContainerID empty for STATUS and VERSION.
	Plugin, ContainerID string
	Outcome             Outcome
	// Code, Msg and Details are from the plugin's own error (CNI spec section 5, "Error"). Code
	// is 0 if it returned none.
	Code         uint
	Msg, Details string
	// Stderr is the end of what the plugin wrote to its standard error.
	Stderr string
	// Err is the failure on the side of the caller; nil for Refused.
	Err error
}

func (e *Error) Error() string {
	s := fmt.Sprintf("plugin %s %s", e.Plugin, e.Verb)
	if e.ContainerID != "" {
		s += " of container ID " + e.ContainerID
	}
	switch e.Outcome {
	case Refused:
		s += fmt.Sprintf(" refused (code %d): %s", e.Code, e.Reason())
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

// Reason returns message and details of the plugin's own error.
func (e *Error) Reason() string {
	if e.Details == "" {
		return e.Msg
	}
	return e.Msg + "; " + e.Details
}

func (e *Error) Unwrap() error { return e.Err }

// IsPluginRefusal reports whether the plugin refused with a plugin-defined error code. CNI's codes
// (below profile.FirstPluginCode) report an unsuitable configuration, environment or moment, never
// the state of the attachment.
func (e *Error) IsPluginRefusal() bool {
	return e.Outcome == Refused && e.Code >= profile.FirstPluginCode
}

// IsLost reports whether the error of a CHECK with an invocation means that the plugin does not
// hold the attachment. Any other error (not started, timed out, killed, one of CNI's own codes)
// means that the check failed, which is not evidence of loss: an address in use must not be given
// up (docs/design/how-it-works.md, Verify and profiles).
func IsLost(inv Invocation, err error) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && e.Verb == VerbCheck && e.IsPluginRefusal() && inv.Profile.IsLost(e.Code, e.Msg, e.Details)
}

// IsNotHeld reports whether an error is a DEL's definite answer that the plugin holds nothing under the container ID.
func IsNotHeld(inv Invocation, err error) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && e.Verb == VerbDel && e.IsPluginRefusal() && inv.Profile.IsNotHeld(e.Code, e.Msg, e.Details)
}
