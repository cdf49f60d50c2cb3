package bridge

import (
	"math/rand/v2"
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/bridge/planner"
)

// maxRefusalDelay limits the delay after a refused request: addresses that another node has released
// are found within it.
const maxRefusalDelay = 45 * time.Second

// backoff delays the repetition of one request that the sidecar has refused, longer after each refusal.
type backoff struct {
	limit time.Duration
	until time.Time
	// reason and cause are those of the last refusal, since is the time of the first, failed that of the
	// first that a busy sidecar did not cause; zero for none.
	reason        planner.Reason
	cause         error
	since, failed time.Time
}

// extend returns the backoff after another refusal; b is nil for the first.
func (b *backoff) extend(cause *refusal) *backoff {
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

// jitter returns a random duration between two.
func jitter(from, to time.Duration) time.Duration { return from + rand.N(to-from) }
