package cluster

import (
	"context"
	"fmt"
	"testing"
	"time"
)

// Eventually calls check until it returns nil, and returns its last error after the limit. The
// limit must be long enough for a busy machine.
func Eventually(ctx context.Context, limit time.Duration, check func() error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		err := check()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("gave up after %s: %w", limit, err)
		case <-tick.C:
		}
	}
}

// MustEventually is Eventually that fails the test; what names the awaited condition.
func MustEventually(t testing.TB, what string, limit time.Duration, check func() error) {
	t.Helper()
	if err := Eventually(t.Context(), limit, check); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}
