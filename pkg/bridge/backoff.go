package bridge

import (
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// newRetryBackoff returns the delays after failed reconciliations: from 1 s to 30 s, each extended by
// up to half so that nodes do not retry simultaneously.
func newRetryBackoff() *wait.Backoff {
	return &wait.Backoff{Duration: time.Second, Factor: 2, Jitter: 0.5, Steps: 10, Cap: 30 * time.Second}
}

// backoff delays the repetition of one request to the sidecar, longer after each failure.
type backoff struct {
	steps wait.Backoff
	until time.Time
	// cause is the last failure.
	cause error
}

// newBackoff returns a backoff that is not active: its delays are from 5 s to 5 min, each extended by
// up to its length so that nodes do not retry simultaneously.
func newBackoff() *backoff {
	return &backoff{steps: wait.Backoff{Duration: 5 * time.Second, Factor: 2, Jitter: 1, Steps: 7, Cap: 5 * time.Minute}}
}

// extend starts the next delay.
func (b *backoff) extend(cause error) {
	b.cause, b.until = cause, time.Now().Add(b.steps.Step())
}

func (b *backoff) active() bool { return b != nil && time.Now().Before(b.until) }
