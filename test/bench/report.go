package main

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// report has the results of one run.
type report struct {
	// machine names the machine, its file system, and Go.
	machine string
	// pairs is the number of compared runs of each case.
	pairs  int
	rows   []row
	growth []point
}

func (r *report) add(rows ...row) { r.rows = append(r.rows, rows...) }

// markdown returns the report as tables.
func (r *report) markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s. Each figure is median / p99 of %d alternating pairs of runs, or what the case says.\n\n", r.machine, r.pairs)
	b.WriteString("| case | ours | reference | is | ratio | goal |\n|---|---|---|---|---|---|\n")
	for _, row := range r.rows {
		theirs, ratio, goal := "", "", row.goal
		if len(row.theirs) > 0 {
			theirs, ratio = row.theirs.String()+" "+row.unit, fmt.Sprintf("%.2f", row.ratio())
		}
		if row.missed() {
			goal += " **missed**"
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s |\n", row.name, strings.TrimSpace(row.ours.String()+" "+row.unit), row.reference, theirs, ratio, goal)
	}
	b.WriteString("\n| attachments | host-local, embedded | ours | held, no plugin call |\n|---|---|---|---|\n")
	for _, p := range r.growth {
		fmt.Fprintf(&b, "| %s | %s ms | %s ms | %s ms |\n", thousands(p.attachments), p.plugin, p.own, p.held)
	}
	return b.String()
}

// row is one line of the table.
type row struct {
	name, reference string
	// unit is that of the figures; of a row without any it is the reason.
	unit string
	comparison
	// goal limits the ratio, the difference or ours; "report" is none.
	goal string
}

// compared returns a row of two samples in ms.
func compared(name, reference string, c comparison, goal string) row {
	return row{name, reference, "ms", c, goal}
}

// single returns a row of one figure.
func single(name, unit string, value float64, goal string) row {
	return row{name, "", unit, comparison{ours: sample{value}}, goal}
}

// missed reports whether a row has figures that miss its goal.
func (r row) missed() bool {
	var limit float64
	is := func(format string) bool {
		n, _ := fmt.Sscanf(r.goal, format, &limit)
		return n == 1
	}
	switch ours, theirs := r.ours.quantile(0.5), r.theirs.quantile(0.5); {
	case is("ratio <= %g"):
		return r.ratio() > limit
	case is("ratio >= %g"):
		return r.ratio() < limit
	case is("at most %g ms more"):
		return ours-theirs > limit
	case is("<= %g"):
		return ours > limit
	}
	return false
}

// comparison has the samples of ours and of the reference.
type comparison struct{ ours, theirs sample }

// ratio returns ours divided by the reference.
func (c comparison) ratio() float64 { return c.ours.quantile(0.5) / c.theirs.quantile(0.5) }

// sample is measured values, in the unit of their row.
type sample []float64

// quantile returns the smallest value that at least the share q of all values does not exceed; NaN
// without values.
func (s sample) quantile(q float64) float64 {
	if len(s) == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(s))
	return sorted[max(0, int(math.Ceil(q*float64(len(sorted))))-1)]
}

// String returns the median and the p99, or the only value, with three digits or all before the point.
func (s sample) String() string {
	switch len(s) {
	case 0:
		return ""
	case 1:
		return digits(s[0])
	}
	return digits(s.quantile(0.5)) + " / " + digits(s.quantile(0.99))
}

func digits(v float64) string {
	switch {
	case v < 1:
		return fmt.Sprintf("%.3f", v)
	case v < 10:
		return fmt.Sprintf("%.2f", v)
	case v < 100 && v != math.Trunc(v):
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.0f", v)
}

// warmUp is the number of first runs whose figures are dropped.
const warmUp = 5

// alternate runs ours and the reference n times each, alternating which is first, after warmUp runs
// that do not count. Each returns a figure for each of the comparisons.
func alternate(n int, ours, reference func() []float64) (all []comparison) {
	for i := range n + warmUp {
		for turn := range 2 {
			side := (i + turn) % 2
			for k, figure := range []func() []float64{ours, reference}[side]() {
				if k == len(all) {
					all = append(all, comparison{})
				}
				if s := []*sample{&all[k].ours, &all[k].theirs}[side]; i >= warmUp {
					*s = append(*s, figure)
				}
			}
		}
	}
	return all
}
