package agent

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// record logs a measurement, and adds it to the table that run.sh prints at the end.
func (tb *testbed) record(t *testing.T, what string, value any) {
	t.Helper()
	if d, ok := value.(time.Duration); ok {
		value = d.Round(10 * time.Millisecond)
	}
	t.Logf("%s: %v", what, value)
	f, err := os.OpenFile(filepath.Join(tb.built, "measurements.md"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	must(t, err)
	defer f.Close()
	_, err = fmt.Fprintf(f, "| `%s` | %s | %v |\n", t.Name(), what, value)
	must(t, err)
}

// medianAndMax formats the median and the maximum of durations.
func medianAndMax(all []time.Duration) string {
	if len(all) == 0 {
		return "none"
	}
	s := slices.Sorted(slices.Values(all))
	round := func(d time.Duration) time.Duration { return d.Round(10 * time.Millisecond) }
	return fmt.Sprintf("%s median, %s at most", round(s[len(s)/2]), round(s[len(s)-1]))
}
