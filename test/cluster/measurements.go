package cluster

import (
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

// Record logs a measurement, and appends it to a table, which the run.sh of a test prints at the end.
func Record(t testing.TB, table, what string, value any) {
	t.Helper()
	if d, ok := value.(time.Duration); ok {
		value = d.Round(10 * time.Millisecond)
	}
	t.Logf("%s: %v", what, value)
	f, err := os.OpenFile(table, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	harness.Must(t, err)
	defer f.Close()
	_, err = fmt.Fprintf(f, "| `%s` | %s | %v |\n", t.Name(), what, value)
	harness.Must(t, err)
}

// MedianAndMax formats the median and the maximum of durations.
func MedianAndMax(all []time.Duration) string {
	if len(all) == 0 {
		return "none"
	}
	s := slices.Sorted(slices.Values(all))
	round := func(d time.Duration) time.Duration { return d.Round(10 * time.Millisecond) }
	return fmt.Sprintf("%s median, %s at most", round(s[len(s)/2]), round(s[len(s)-1]))
}
