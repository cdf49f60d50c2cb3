package call

import "errors"

// FirstPluginCode is where a plugin's own error codes begin. Those below are
// the CNI spec's (section 5, "Error"): they tell of an unfit configuration,
// environment or moment, never of the attachment.
const FirstPluginCode = 100

// Lost tells whether the error of a CHECK means that the plugin does not hold
// the attachment. Everything else (did not start, timed out, was killed, one
// of CNI's own codes) means that it could not be asked: a live address is
// never given up because a question failed (docs/how-it-works.md, Verify and profiles).
func Lost(c Invocation, err error) bool {
	var e *Error
	if !errors.As(err, &e) {
		return false
	}
	if e.Verb != VerbCheck || e.Outcome != Refused || e.Code < FirstPluginCode {
		return false
	}
	return c.Profile.IsLost(e.Code, e.Msg, e.Details)
}
