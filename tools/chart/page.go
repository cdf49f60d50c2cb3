package main

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// The marks around the tables (test/bench/report.go).
const (
	beginMark = "<!-- written by make bench: begin -->"
	endMark   = "<!-- written by make bench: end -->"
)

// tables are the figures of a page.
type tables struct {
	// machine names the machine on which they were measured.
	machine string
	cases   []benchmark
	growth  []point
}

// benchmark is a case that has a ratio.
type benchmark struct {
	// name is the case and its reference.
	name, goal string
	// ratio is ours divided by the reference.
	ratio float64
	// missed is set if the ratio misses the goal.
	missed bool
}

// point is a row of the table of growth: medians in milliseconds.
type point struct {
	attachments        float64
	plugin, ours, held float64
}

// parse reads the tables between the marks of a page.
func parse(page string) (tables, error) {
	_, rest, begins := strings.Cut(page, beginMark+"\n")
	text, _, ends := strings.Cut(rest, endMark)
	if !begins || !ends {
		return tables{}, fmt.Errorf("no tables between %q and %q", beginMark, endMark)
	}
	var t tables
	t.machine, _, _ = strings.Cut(text, ". Each figure is ")
	var errs []error
	for line := range strings.Lines(text) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		errs = append(errs, t.add(cells))
	}
	if len(t.cases) == 0 || len(t.growth) == 0 {
		errs = append(errs, errors.New("no row with figures in one of the two tables"))
	}
	return t, errors.Join(errs...)
}

// add adds one row. Heads, rules and rows without a ratio are left out.
func (t *tables) add(cells []string) error {
	switch {
	case len(cells) == 6 && cells[4] != "" && cells[0] != "case" && !strings.HasPrefix(cells[0], "---"):
		ratio, err := strconv.ParseFloat(cells[4], 64)
		goal, missed := strings.CutSuffix(cells[5], " **missed**")
		t.cases = append(t.cases, benchmark{name: cells[0] + "; beside " + cells[2], goal: goal, ratio: ratio, missed: missed})
		return err
	case len(cells) == 4 && cells[0] != "attachments" && !strings.HasPrefix(cells[0], "---"):
		n, err := strconv.ParseFloat(strings.ReplaceAll(cells[0], ",", ""), 64)
		p := point{attachments: n}
		for i, figure := range []*float64{&p.plugin, &p.ours, &p.held} {
			median, _, _ := strings.Cut(cells[i+1], " ")
			var figureErr error
			*figure, figureErr = strconv.ParseFloat(median, 64)
			err = errors.Join(err, figureErr)
		}
		t.growth = append(t.growth, p)
		return err
	}
	return nil
}
