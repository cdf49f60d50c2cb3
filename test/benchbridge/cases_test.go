package benchbridge

import (
	"cmp"
	"slices"
	"testing"
	"time"
)

// benchCase is a case of the table.
type benchCase struct {
	name string
	// waits is set if the case mostly waits: it runs simultaneously with the others that do.
	waits bool
	// of are the suppliers that it measures.
	of      []supplier
	measure func(*testing.T, *bench, supplier) []row
}

const (
	// manyNodes is the number of nodes in the outage that shows how its cost grows.
	manyNodes = 100
	// recommendedWatermark is the value in docs/operate/bridge.md, Sizing; the default is 0.
	recommendedWatermark = 8
)

func cases() []benchCase {
	burstAt := func(updateRate time.Duration) func(*testing.T, *bench, supplier) []row {
		return func(t *testing.T, b *bench, s supplier) []row { return burst(t, b, s, updateRate) }
	}
	outageOf := func(count int) func(*testing.T, *bench, supplier) []row {
		return func(t *testing.T, b *bench, s supplier) []row { return outage(t, b, s, cmp.Or(count, b.nodes)) }
	}
	churnWith := func(watermark int) func(*testing.T, *bench, supplier) []row {
		return func(t *testing.T, b *bench, s supplier) []row { return churn(t, b, s, watermark) }
	}
	all, either := []supplier{ownRange, sharedRange, operator}, []supplier{ownRange, sharedRange}
	// In a range of the node's own there is no excess, and an outage leaves nothing to publish.
	shared, excesses := []supplier{sharedRange}, []supplier{sharedRange, operator}
	return []benchCase{
		{"burst 1s", false, all, burstAt(time.Second)},
		{"burst 15s", true, all, burstAt(defaultUpdateRate)},
		{"excess", true, excesses, excess},
		{"pods end", true, excesses, podsEnd},
		{"slow plugin", true, either, slowPlugin},
		{"pod again", true, either, podAgain},
		{"fresh", false, either, freshNodes},
		{"outage", false, shared, outageOf(0)},
		{"outage of many", false, shared, outageOf(manyNodes)},
		{"exhausted", true, shared, exhausted},
		{"churn", false, all, churnWith(0)},
		{"churn with the watermark", false, excesses, churnWith(recommendedWatermark)},
	}
}

// measure runs the cases with a supplier.
func (b *bench) measure(t *testing.T, s supplier) {
	run := func(t *testing.T, waits bool) {
		for i, c := range cases() {
			if c.waits != waits || !slices.Contains(c.of, s) {
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
