package harness

import (
	"context"
	"testing"
	"time"
)

const (
	// patience is when a test gives up on something that must come. It is no
	// bound on how long the thing may take.
	patience = 60 * time.Second
	interval = 20 * time.Millisecond
)

// Eventually asks until the answer is nil, and fails the test with the last
// answer when it stays an error. For what another process does in its own time.
func Eventually(t testing.TB, what string, ask func() error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		err := ask()
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
