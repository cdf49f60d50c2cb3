package harness

import (
	"os"
	"testing"
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
