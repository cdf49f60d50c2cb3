package agent

import (
	"context"
	"fmt"
	"testing"
	"time"
)

// eventually calls check until it returns nil, and returns its last error after the limit. The limit
// is long enough for a busy machine.
func eventually(ctx context.Context, limit time.Duration, check func() error) error {
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

func mustEventually(t *testing.T, what string, limit time.Duration, check func() error) {
	t.Helper()
	if err := eventually(t.Context(), limit, check); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}
