package main

import (
	"fmt"
	"math"
)

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

// verdict returns whether a row reaches its goal, as text.
func (r row) verdict() string {
	switch {
	case r.Goal.reached == nil || r.Note != "":
		return ""
	case r.Goal.reached(r):
		return "yes"
	default:
		return "**no**"
	}
}
