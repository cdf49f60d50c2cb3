package bridge

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/util/flowcontrol"
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

// The delay after a refused request is between minRefusalDelay and twice that, and grows to
// maxRefusalDelay: addresses that another node has released are found within it.
const (
	minRefusalDelay = 2500 * time.Millisecond
	maxRefusalDelay = 45 * time.Second
)

// refusal is a request that the sidecar has refused, and repeats after a delay.
type refusal struct {
	until time.Time
	// reason and cause describe the last refusal, since is the time of the first, and failed the time of
	// the first that a busy sidecar did not cause; zero for none.
	reason        string
	cause         error
	since, failed time.Time
}

func (r *refusal) active() bool { return r != nil && time.Now().Before(r.until) }

// refusals are the refused requests of one kind, by address. Each refusal in a row of one address delays its
// repetition for longer.
type refusals struct {
	delays *flowcontrol.Backoff
	of     map[netip.Addr]*refusal
}

func newRefusals() refusals {
	return refusals{flowcontrol.NewBackOffWithJitter(minRefusalDelay, maxRefusalDelay, 1), map[netip.Addr]*refusal{}}
}

// add records a refusal. A sidecar that names a delay (Retry-After) is asked again after that.
func (r refusals) add(ip netip.Addr, cause *failure) {
	now := time.Now()
	last := r.of[ip]
	if last == nil {
		last = &refusal{since: now}
		r.of[ip] = last
	}
	last.reason, last.cause = cause.reason, cause.err
	if last.failed.IsZero() && last.reason != reasonSidecarBusy {
		last.failed = now
	}
	if cause.after > 0 {
		last.until = now.Add(jitter(cause.after, 2*cause.after))
		return
	}
	r.delays.Next(ip.String(), now)
	last.until = now.Add(r.delays.Get(ip.String()))
}

func (r refusals) end(ip netip.Addr) {
	r.delays.Reset(ip.String())
	delete(r.of, ip)
}

// forget removes the addresses that no longer exist.
func (r refusals) forget(exists func(netip.Addr) bool) {
	for ip := range r.of {
		if !exists(ip) {
			r.end(ip)
		}
	}
}

// active returns the addresses whose requests are not repeated yet.
func (r refusals) active() map[netip.Addr]bool {
	out := map[netip.Addr]bool{}
	for ip, last := range r.of {
		out[ip] = last.active()
	}
	return out
}

func jitter(from, to time.Duration) time.Duration { return from + rand.N(to-from) }
