package harness

import (
	"context"
	"testing"
	"time"
)

const (
	// waitTimeout is when a test gives up waiting. It is long enough for a busy machine, so it
	// says nothing about how long the sidecar may take.
	waitTimeout  = 60 * time.Second
	pollInterval = 5 * time.Millisecond
)

// Eventually calls check until it returns nil, and fails the test with its last error after
// waitTimeout. It waits for the effects of other processes.
func Eventually(t testing.TB, what string, check func() error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), waitTimeout)
	defer cancel()
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for {
		err := check()
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("gave up waiting for: %s: %v", what, err)
		case <-tick.C:
		}
	}
}

// Must fails the test if err is not nil.
func Must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
