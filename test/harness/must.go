package harness

import (
	"os"
	"testing"
	"time"
)

// Skipf skips a test because the machine lacks a requirement, which the message names. With
// CI=true it fails the test instead: there a skipped test would pass for a successful one.
func Skipf(t testing.TB, format string, args ...any) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatalf("required in CI: "+format, args...)
	}
	t.Skipf(format, args...)
}

const (
	// waitTimeout is when a test gives up waiting. It is long enough for a busy machine, so it
	// does not limit the time of the daemon.
	waitTimeout = 10 * time.Minute
	// The interval between two checks grows up to a limit: most waits are short, and frequent
	// checks in a long one would only slow down the process that they wait for.
	minPollInterval, maxPollInterval = time.Millisecond, 25 * time.Millisecond
)

// Eventually calls check until it returns nil, and fails the test with its last error after
// waitTimeout. It waits for the effects of other processes.
func Eventually(t testing.TB, what string, check func() error) {
	t.Helper()
	deadline := time.Now().Add(waitTimeout)
	for interval := minPollInterval; ; interval = min(interval*3/2, maxPollInterval) {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("gave up waiting for: %s: %v", what, err)
		}
		time.Sleep(interval)
	}
}
