package bridge

import (
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/delegated-ipam/delegated-ipam/internal/bridge/planner"
)

// Reasons of conditions besides those that the planner reports (docs/operate/bridge.md, Events).
const (
	reasonPoolExhausted      planner.Reason = "PoolExhausted"
	reasonPluginFailed       planner.Reason = "PluginFailed"
	reasonRequestRefused     planner.Reason = "RequestRefused"
	reasonSidecarBusy        planner.Reason = "SidecarBusy"
	reasonAgentNotResponding planner.Reason = "AgentNotResponding"
	reasonMalformedEntry     planner.Reason = "MalformedPoolEntry"
	reasonWrongMode          planner.Reason = "WrongIPAMMode"
	reasonNodeMissing        planner.Reason = "CiliumNodeMissing"
	reasonNotPermitted       planner.Reason = "NotPermitted"
	reasonAPIUnavailable     planner.Reason = "APIServerUnavailable"
	reasonSidecarUnavailable planner.Reason = "SidecarUnavailable"
	reasonNodeMismatch       planner.Reason = "SidecarNodeMismatch"
	reasonOwnerNotAdmitted   planner.Reason = "OwnerNotAdmitted"
	reasonNoProgress         planner.Reason = "NoProgress"
)

// errorReasons returns the reasons of a reconcileError.
func errorReasons() []planner.Reason {
	return []planner.Reason{
		reasonWrongMode, reasonNodeMissing, reasonNotPermitted, reasonAPIUnavailable,
		reasonSidecarUnavailable, reasonNodeMismatch, reasonOwnerNotAdmitted, reasonNoProgress,
	}
}

// refusal is a response of the sidecar that it has not executed a request. It affects one slot only.
type refusal struct {
	reason planner.Reason
	err    error
	// after is the delay that the response names (Retry-After); 0 for none.
	after time.Duration
}

// Error returns the reason and the cause.
func (r *refusal) Error() string { return string(r.reason) + ": " + r.err.Error() }

// Unwrap returns the cause.
func (r *refusal) Unwrap() error { return r.err }

// reconcileError is the error of a failed reconciliation, with the reason of its condition.
type reconcileError struct {
	reason planner.Reason
	err    error
}

// Error returns the reason and the cause.
func (e *reconcileError) Error() string { return string(e.reason) + ": " + e.err.Error() }

// Unwrap returns the cause.
func (e *reconcileError) Unwrap() error { return e.err }

// terminal reports whether only a change of the CiliumNode can end the error, so that a retry is
// useless.
func (e *reconcileError) terminal() bool {
	return e.reason == reasonWrongMode || e.reason == reasonNodeMissing
}

// ofSidecar reports whether the sidecar is the cause. The API server was available then.
func (e *reconcileError) ofSidecar() bool {
	return slices.Contains([]planner.Reason{reasonSidecarUnavailable, reasonNodeMismatch, reasonOwnerNotAdmitted, reasonNoProgress}, e.reason)
}

// apiError adds the reason to an error of the API server. A conflict is returned unchanged.
func apiError(err error) error {
	switch {
	case err == nil || apierrors.IsConflict(err):
		return err
	case apierrors.IsNotFound(err):
		return &reconcileError{reasonNodeMissing, err}
	case apierrors.IsForbidden(err), apierrors.IsUnauthorized(err):
		return &reconcileError{reasonNotPermitted, err}
	default:
		return &reconcileError{reasonAPIUnavailable, err}
	}
}
