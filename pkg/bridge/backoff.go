package bridge

import (
	"math/rand/v2"
	"time"

	"github.com/delegated-ipam/delegated-ipam/pkg/bridge/planner"
)

const (
	// maxRetryDelay limits the delay after a failed reconciliation. With full jitter 100 nodes whose API
	// server is down send 20 requests per second.
	maxRetryDelay = 10 * time.Second
	// minRetryDelay is the shortest of these delays.
	minRetryDelay = 100 * time.Millisecond
	// maxRefusalDelay limits the delay after a refused request: addresses that another node has released
	// are found within it.
	maxRefusalDelay = 45 * time.Second
)

// retryDelays are the delays after failures in a row.
type retryDelays struct{ limit time.Duration }

// next returns a random delay (full jitter, so that nodes do not retry simultaneously) up to a limit
// that doubles with each call.
func (r *retryDelays) next() time.Duration {
	r.limit = min(max(2*r.limit, time.Second), maxRetryDelay)
	return minRetryDelay + rand.N(r.limit-minRetryDelay)
}

// reset starts the delays again, after a success.
func (r *retryDelays) reset() { r.limit = 0 }

// backoff delays the repetition of one request that the sidecar has refused, longer after each refusal.
type backoff struct {
	limit time.Duration
	until time.Time
	// reason and cause are those of the last refusal, since is the time of the first.
	reason planner.Reason
	cause  error
	since  time.Time
}

// extend returns the backoff after another refusal; b is nil for the first.
func (b *backoff) extend(cause *refusal) *backoff {
	if b == nil {
		b = &backoff{limit: 2500 * time.Millisecond, since: time.Now()}
	}
	b.reason, b.cause = cause.reason, cause.err
	if cause.after > 0 {
		b.until = time.Now().Add(jitter(cause.after, 2*cause.after))
		return b
	}
	b.limit = min(2*b.limit, maxRefusalDelay)
	b.until = time.Now().Add(jitter(b.limit/2, b.limit))
	return b
}

func (b *backoff) active() bool { return b != nil && time.Now().Before(b.until) }

// jitter returns a random duration between two.
func jitter(from, to time.Duration) time.Duration { return from + rand.N(to-from) }
