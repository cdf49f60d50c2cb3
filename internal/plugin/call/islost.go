package call

import "errors"

// IsLost reports whether the error of a CHECK with an invocation means that the plugin does not
// hold the attachment. Any other error (not started, timed out, killed, one of CNI's own codes)
// means that the check failed, which is not evidence of loss: an address in use must not be given
// up (docs/design/how-it-works.md, Verify and profiles).
func IsLost(inv Invocation, err error) bool {
	var e *Error
	if !errors.As(err, &e) {
		return false
	}
	return e.Verb == VerbCheck && e.IsPluginRefusal() && inv.Profile.IsLost(e.Code, e.Msg, e.Details)
}
