package bridge

import (
	"math/rand/v2"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Reasons of conditions besides those that the planner reports (docs/operate/bridge.md, Events).
const (
	reasonPoolExhausted      = "PoolExhausted"
	reasonPluginFailed       = "PluginFailed"
	reasonRequestRefused     = "RequestRefused"
	reasonSidecarBusy        = "SidecarBusy"
	reasonAgentNotResponding = "AgentNotResponding"
	reasonMalformedEntry     = "MalformedPoolEntry"
	reasonWrongMode          = "WrongIPAMMode"
	reasonNodeMissing        = "CiliumNodeMissing"
	reasonNotPermitted       = "NotPermitted"
	reasonAPIUnavailable     = "APIServerUnavailable"
	reasonSidecarUnavailable = "SidecarUnavailable"
	reasonNodeMismatch       = "SidecarNodeMismatch"
	reasonOwnerNotAdmitted   = "OwnerNotAdmitted"
	reasonNoProgress         = "NoProgress"
)

// failure is the error of a failed reconciliation or request, with the reason of its condition.
type failure struct {
	reason string
	err    error
	// refused reports whether the sidecar has not executed a request, which affects one slot only. after
	// is the delay that its response names (Retry-After); 0 for none.
	refused bool
	after   time.Duration
}

func fail(reason string, err error) *failure { return &failure{reason: reason, err: err} }

func (f *failure) Error() string { return f.reason + ": " + f.err.Error() }

func (f *failure) Unwrap() error { return f.err }

// terminal reports whether only a change of the CiliumNode can end the failure, so that a retry is
// useless.
func (f *failure) terminal() bool {
	return f.reason == reasonWrongMode || f.reason == reasonNodeMissing
}

// ofSidecar reports whether the sidecar is the cause. The API server was available then.
func (f *failure) ofSidecar() bool {
	return slices.Contains([]string{reasonSidecarUnavailable, reasonNodeMismatch, reasonOwnerNotAdmitted, reasonNoProgress}, f.reason)
}

// apiError adds the reason to an error of the API server. A conflict is returned unchanged.
func apiError(err error) error {
	switch {
	case err == nil || apierrors.IsConflict(err):
		return err
	case apierrors.IsNotFound(err):
		return fail(reasonNodeMissing, err)
	case apierrors.IsForbidden(err), apierrors.IsUnauthorized(err):
		return fail(reasonNotPermitted, err)
	default:
		return fail(reasonAPIUnavailable, err)
	}
}

// maxRefusalDelay limits the delay after a refused request: addresses that another node has released
// are found within it.
const maxRefusalDelay = 45 * time.Second

// backoff delays the repetition of one request that the sidecar has refused, longer after each refusal.
type backoff struct {
	limit time.Duration
	until time.Time
	// reason and cause describe the last refusal, since is the time of the first, and failed the time of
	// the first that a busy sidecar did not cause; zero for none.
	reason        string
	cause         error
	since, failed time.Time
}

// extend returns the backoff after another refusal; b is nil for the first.
func (b *backoff) extend(cause *failure) *backoff {
	if b == nil {
		b = &backoff{limit: 2500 * time.Millisecond, since: time.Now()}
	}
	b.reason, b.cause = cause.reason, cause.err
	if b.failed.IsZero() && b.reason != reasonSidecarBusy {
		b.failed = time.Now()
	}
	if cause.after > 0 {
		b.until = time.Now().Add(jitter(cause.after, 2*cause.after))
		return b
	}
	b.limit = min(2*b.limit, maxRefusalDelay)
	b.until = time.Now().Add(jitter(b.limit/2, b.limit))
	return b
}

func (b *backoff) active() bool { return b != nil && time.Now().Before(b.until) }

func jitter(from, to time.Duration) time.Duration { return from + rand.N(to-from) }
