package benchbridge

import (
	"testing"
	"time"
)

// benchCase is a case of the table.
type benchCase struct {
	name string
	// waits is set if the case mostly waits: it runs simultaneously with the others that do.
	waits bool
	// operator is set if cilium-operator's logic can do the same.
	operator bool
	measure  func(*testing.T, *bench, supplier) []row
}

func cases() []benchCase {
	burstAt := func(updateRate time.Duration) func(*testing.T, *bench, supplier) []row {
		return func(t *testing.T, b *bench, s supplier) []row { return burst(t, b, s, updateRate) }
	}
	return []benchCase{
		{"burst 1s", false, true, burstAt(time.Second)},
		{"burst 15s", true, true, burstAt(defaultUpdateRate)},
		{"excess", true, true, excess},
		{"slow plugin", true, false, slowPlugin},
		{"pod again", true, false, podAgain},
		{"fresh", false, false, freshNodes},
		{"outage", false, false, outage},
		{"exhausted", true, false, exhausted},
		{"churn", false, true, churn},
	}
}

// measure runs the cases with a supplier.
func (b *bench) measure(t *testing.T, s supplier) {
	run := func(t *testing.T, waits bool) {
		for i, c := range cases() {
			if c.waits != waits || s == operator && !c.operator {
				continue
			}
			t.Run(c.name, func(t *testing.T) {
				if waits {
					t.Parallel()
				}
				rows := c.measure(t, b, s)
				for _, r := range rows {
					t.Logf("%+v", r)
				}
				b.report.add(s, i, rows)
			})
		}
	}
	t.Run("one by one", func(t *testing.T) { run(t, false) })
	t.Run("simultaneously", func(t *testing.T) { run(t, true) })
}
