package engine

import (
	"errors"
	"net/netip"

	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
)

// unusableResult is a successful ADD whose result does not match the request.
type unusableResult struct{ error }

// retryable reports whether an ADD that requests less may succeed: the plugin works but refuses
// this request. CNI's own codes (try again later, invalid configuration) do not say that, and
// an address that may be available later is not lost for them.
func retryable(err error) bool {
	var unusable *unusableResult
	var duplicate *duplicateError
	var e *call.Error
	return errors.As(err, &unusable) || errors.As(err, &duplicate) ||
		errors.As(err, &e) && e.IsPluginRefusal()
}

// isRefused reports whether the plugin refused a call, or did not run.
func isRefused(err error) bool {
	e, ok := errors.AsType[*call.Error](err)
	return ok && e.Outcome != call.Unknown
}

// outcomeUnknown reports whether the plugin may still act on a failed call.
func outcomeUnknown(err error) bool {
	var e *call.Error
	return errors.As(err, &e) && e.Outcome == call.Unknown
}

// maxRepeats bounds how often an acquisition repeats a request because of another attachment.
const maxRepeats = 16

// repeatAfter reports whether the same addresses are requested again. A plugin that continues after
// its last address, as host-local does, returns others next time. One that returns the same address
// twice, though none was requested, has probably no other. Requested addresses that are available
// are not given up so soon.
func (r *acquireRequest) repeatAfter(requested []netip.Addr, err error) bool {
	d, ok := errors.AsType[*duplicateError](err)
	if !ok || !d.repeatable || r.repeated == maxRepeats || len(requested) == 0 && d.ip == r.conflict {
		return false
	}
	r.repeated, r.conflict = r.repeated+1, d.ip
	return true
}
