package main

import (
	"fmt"
	"math"
)

// row is one line of the table. A figure that there is none of is NaN.
type row struct {
	Case, Reference string
	// Unit is that of the four figures.
	Unit string

	Ours, OursP99     float64
	Theirs, TheirsP99 float64

	Goal goal
	// Instead is what is said in place of figures; empty where there are some.
	Instead string
}

// goal is what a row is to reach.
type goal struct {
	text string
	// reached judges a row; nil where there is only something to report.
	reached func(row) bool
}

// ratio is ours in proportion to the reference.
func (r row) ratio() float64 { return r.Ours / r.Theirs }

// compared is a row of two samples.
func compared(name, reference string, c contest, g goal) row {
	return row{
		Case: name, Reference: reference, Unit: "ms", Goal: g,
		Ours: c.ours.median(), OursP99: c.ours.p99(), Theirs: c.reference.median(), TheirsP99: c.reference.p99(),
	}
}

// single is a row of one figure.
func single(name, unit string, value float64, g goal) row {
	nan := math.NaN()
	return row{Case: name, Unit: unit, Goal: g, Ours: value, OursP99: nan, Theirs: nan, TheirsP99: nan}
}

// missing is a row that could not be measured, with the reason.
func missing(name, reference, why string, g goal) row {
	r := single(name, "ms", math.NaN(), g)
	r.Reference, r.Instead = reference, why
	return r
}

func atMost(limit float64) goal {
	return goal{fmt.Sprintf("ratio <= %.2f", limit), func(r row) bool { return r.ratio() <= limit }}
}

func atLeast(limit float64) goal {
	return goal{fmt.Sprintf("ratio >= %.2f", limit), func(r row) bool { return r.ratio() >= limit }}
}

// beyond allows so much more than the reference, in the row's unit.
func beyond(limit float64) goal {
	return goal{fmt.Sprintf("at most %.0f ms more", limit), func(r row) bool { return r.Ours-r.Theirs <= limit }}
}

func below(limit float64) goal {
	return goal{fmt.Sprintf("<= %.0f", limit), func(r row) bool { return r.Ours <= limit }}
}

func reported() goal { return goal{text: "report"} }

// verdict tells whether a row reaches its goal.
func (r row) verdict() string {
	switch {
	case r.Goal.reached == nil || r.Instead != "":
		return ""
	case r.Goal.reached(r):
		return "yes"
	default:
		return "**no**"
	}
}
