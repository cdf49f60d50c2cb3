package agent

import (
	"context"
	"fmt"
	"testing"
	"time"
)

// eventually asks until the answer is nil; after the limit the last answer is
// the error. The limit is when to give up, no bound on how long it may take.
func eventually(ctx context.Context, limit time.Duration, ask func() error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		err := ask()
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

func mustEventually(t *testing.T, what string, limit time.Duration, ask func() error) {
	t.Helper()
	if err := eventually(t.Context(), limit, ask); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}
