package main

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// report has the results of one run.
type report struct {
	// Machine names the machine, its file system, and Go.
	Machine string
	// Pairs is the number of compared runs of each case.
	Pairs  int
	Rows   []row
	Growth []point
}

func (r *report) add(rows ...row) { r.Rows = append(r.Rows, rows...) }

// markdown returns the report as tables.
func (r *report) markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s. Each figure is median / p99 of %d alternating pairs of runs, or what the case says.\n\n", r.Machine, r.Pairs)
	b.WriteString("| case | ours | reference | is | ratio | goal |\n|---|---|---|---|---|---|\n")
	for _, row := range r.Rows {
		ours, theirs, ratio := row.Note, "", ""
		if row.Note == "" {
			ours = figure(row.Ours, row.OursP99) + " " + row.Unit
		}
		if !math.IsNaN(row.Theirs) {
			theirs = figure(row.Theirs, row.TheirsP99) + " " + row.Unit
			ratio = fmt.Sprintf("%.2f", row.ratio())
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s |\n", row.Case, ours, row.Reference, theirs, ratio, row.goal())
	}
	b.WriteString("\n| attachments | host-local, embedded | ours | held, no plugin call |\n|---|---|---|---|\n")
	for _, p := range r.Growth {
		fmt.Fprintf(&b, "| %s | %s ms | %s ms | %s ms |\n", thousands(p.Attachments),
			figure(p.Plugin.median(), p.Plugin.p99()), figure(p.Own.median(), p.Own.p99()), figure(p.Held.median(), p.Held.p99()))
	}
	return b.String()
}

// figure formats a median and its p99, if there is one, with three digits or all before the point.
func figure(median, p99 float64) string {
	if math.IsNaN(p99) {
		return digits(median)
	}
	return digits(median) + " / " + digits(p99)
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

// row is one line of the table. A missing figure is NaN.
type row struct {
	Case, Reference string
	// Unit is the unit of the four values.
	Unit string

	Ours, OursP99     float64
	Theirs, TheirsP99 float64

	Goal goal
	// Note replaces missing values; otherwise empty.
	Note string
}

// goal is the goal of a row.
type goal struct {
	text string
	// reached reports whether a row reaches the goal; nil if the row has none.
	reached func(row) bool
}

// ratio returns ours divided by the reference.
func (r row) ratio() float64 { return r.Ours / r.Theirs }

// compared returns a row of two samples.
func compared(name, reference string, c comparison, g goal) row {
	return row{
		Case: name, Reference: reference, Unit: "ms", Goal: g,
		Ours: c.ours.median(), OursP99: c.ours.p99(), Theirs: c.reference.median(), TheirsP99: c.reference.p99(),
	}
}

// single returns a row of one figure.
func single(name, unit string, value float64, g goal) row {
	nan := math.NaN()
	return row{Case: name, Unit: unit, Goal: g, Ours: value, OursP99: nan, Theirs: nan, TheirsP99: nan}
}

// missing returns a row that could not be measured, with the reason.
func missing(name, reference, why string, g goal) row {
	r := single(name, "ms", math.NaN(), g)
	r.Reference, r.Note = reference, why
	return r
}

func atMost(limit float64) goal {
	return goal{fmt.Sprintf("ratio <= %.2f", limit), func(r row) bool { return r.ratio() <= limit }}
}

func atLeast(limit float64) goal {
	return goal{fmt.Sprintf("ratio >= %.2f", limit), func(r row) bool { return r.ratio() >= limit }}
}

// atMostMore limits the difference to the reference, in the unit of the row.
func atMostMore(limit float64) goal {
	return goal{fmt.Sprintf("at most %.0f ms more", limit), func(r row) bool { return r.Ours-r.Theirs <= limit }}
}

func below(limit float64) goal {
	return goal{fmt.Sprintf("<= %.0f", limit), func(r row) bool { return r.Ours <= limit }}
}

func reportOnly() goal { return goal{text: "report"} }

// goal returns the goal of a row, with a mark if the row has figures that miss it.
func (r row) goal() string {
	if r.Goal.reached != nil && r.Note == "" && !r.Goal.reached(r) {
		return r.Goal.text + " **missed**"
	}
	return r.Goal.text
}

// sample is measured values, in the unit of their row.
type sample []float64

// ms returns a time in milliseconds.
func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// quantile returns the smallest value that at least the share q of all values does not exceed; NaN
// without values.
func (s sample) quantile(q float64) float64 {
	if len(s) == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(s))
	return sorted[max(0, int(math.Ceil(q*float64(len(sorted))))-1)]
}

func (s sample) median() float64 { return s.quantile(0.5) }

func (s sample) p99() float64 { return s.quantile(0.99) }

// comparison has the samples of ours and of the reference.
type comparison struct{ ours, reference sample }

// warmUp is the number of first runs whose figures are dropped.
const warmUp = 5

// alternate runs ours and the reference n times each, alternating which is first, after warmUp runs
// that do not count. Each returns a figure for each of the comparisons.
func alternate(n int, ours, reference func() []float64, into ...*comparison) {
	add := func(i int, run func() []float64, samples func(*comparison) *sample) {
		figures := run()
		for k, c := range into {
			if s := samples(c); i >= warmUp {
				*s = append(*s, figures[k])
			}
		}
	}
	for i := range n + warmUp {
		first := func() { add(i, ours, func(c *comparison) *sample { return &c.ours }) }
		second := func() { add(i, reference, func(c *comparison) *sample { return &c.reference }) }
		if i%2 == 1 {
			first, second = second, first
		}
		first()
		second()
	}
}
