package main

import (
	"fmt"
	"math"
	"strings"

	"github.com/delegated-ipam/delegated-ipam/test/benchpage"
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
	b.WriteString("| case | ours | reference | is | ratio | goal | reached |\n|---|---|---|---|---|---|---|\n")
	for _, row := range r.Rows {
		var ours, theirs, ratio string
		switch {
		case row.Note != "":
			ours = row.Note
		case math.IsNaN(row.Theirs):
			ours = figure(row.Ours, row.OursP99) + " " + row.Unit
		default:
			ours = figure(row.Ours, row.OursP99) + " " + row.Unit
			theirs = figure(row.Theirs, row.TheirsP99) + " " + row.Unit
			ratio = fmt.Sprintf("%.2f", row.ratio())
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s | %s |\n", row.Case, ours, row.Reference, theirs, ratio, row.Goal.text, row.verdict())
	}
	b.WriteString("\n| attachments | plugin's processes | ours | held, no plugin call |\n|---|---|---|---|\n")
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
	case v == math.Trunc(v) && v >= 10:
		return fmt.Sprintf("%.0f", v)
	case v < 1:
		return fmt.Sprintf("%.3f", v)
	case v < 10:
		return fmt.Sprintf("%.2f", v)
	case v < 100:
		return fmt.Sprintf("%.1f", v)
	default:
		return fmt.Sprintf("%.0f", v)
	}
}

// write replaces the tables of the page.
func (r *report) write(page string) error {
	return benchpage.Replace(page, "make bench", r.markdown())
}
