package kube

import (
	"math/rand/v2"
	"time"
)

const (
	// MaxRetryDelay limits the delay after a failure. With full jitter 100 nodes whose API server is down
	// send 20 requests per second.
	MaxRetryDelay = 10 * time.Second
	// minRetryDelay is the shortest delay.
	minRetryDelay = 100 * time.Millisecond
)

// Retry is the sequence of the delays after failures in a row. The zero value is ready for use.
type Retry struct{ limit time.Duration }

// Next returns a random delay (full jitter, so that nodes do not retry simultaneously) between 100 ms
// and a limit that doubles with each call, from 1 s to MaxRetryDelay.
func (r *Retry) Next() time.Duration {
	r.limit = min(max(2*r.limit, time.Second), MaxRetryDelay)
	return minRetryDelay + rand.N(r.limit-minRetryDelay)
}

// Reset begins the sequence again, after a success.
func (r *Retry) Reset() { r.limit = 0 }
