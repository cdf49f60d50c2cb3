package main

import (
	"bytes"
	"embed"
	"fmt"
	"html/template"
	"math"
)

//go:embed charts
var templates embed.FS

// draw fills one of the templates. They are part of the program, so a failure is
// a mistake in it.
func draw(name string, data any) []byte {
	var b bytes.Buffer
	if err := template.Must(template.ParseFS(templates, "charts/"+name)).Execute(&b, data); err != nil {
		panic(err)
	}
	return b.Bytes()
}

// bar is one case of the chart of cases. Places are in pixels.
type bar struct {
	Case, Label string
	Top         int
	Width       float64
	// Fails colours a bar that misses its goal.
	Fails bool
}

const (
	barHeight = 44
	barsTop   = 50
	// perRatio is the width of a ratio of 1; wider bars than widest are cut.
	perRatio = 240.0
	widest   = 2.4
)

// casesChart shows the ratio of every case that has one.
func (r *report) casesChart() []byte {
	var bars []bar
	for _, row := range r.Rows {
		if math.IsNaN(row.ratio()) {
			continue
		}
		bars = append(bars, bar{
			Case:  fmt.Sprintf("%s; beside %s", row.Case, row.Reference),
			Label: fmt.Sprintf("%.2f (%s)", row.ratio(), row.Goal.text),
			Top:   barsTop + len(bars)*barHeight,
			Width: math.Round(perRatio * min(row.ratio(), widest)),
			Fails: row.verdict() == "**no**",
		})
	}
	return draw("cases.svg", map[string]any{
		"Bars": bars, "Height": barsTop + len(bars)*barHeight + 10, "Machine": r.Machine, "One": perRatio,
	})
}

// The area of the chart of growth in pixels; both axes are logarithmic.
const (
	plotLeft, plotRight = 70.0, 620.0
	plotTop, plotBottom = 40.0, 340.0
	// The axes begin and end at these powers of ten: attachments, and milliseconds.
	firstX, lastX = 1.0, 4.0
	firstY, lastY = -2.0, 3.0
)

// line is one line of the chart of growth.
type line struct {
	Name, Colour, Points string
	// LabelY is where its name stands, beside its last point.
	LabelY float64
}

// tick is a mark of an axis.
type tick struct {
	At   float64
	Text string
}

// growthChart shows the plugin's share and ours, and what needs neither.
func (r *report) growthChart() []byte {
	return draw("growth.svg", map[string]any{
		"Machine": r.Machine, "X": ticks(firstX, lastX, placeX), "Y": ticks(firstY, lastY, placeY),
		"Lines": []line{
			r.line("plugin (DEL, ADD)", "#b45309", func(p point) sample { return p.Plugin }),
			r.line("ours", "#1d4ed8", func(p point) sample { return p.Own }),
			r.line("held, no question", "#047857", func(p point) sample { return p.Held }),
		},
	})
}

// line is the medians of one part of all points.
func (r *report) line(name, colour string, of func(point) sample) line {
	l := line{Name: name, Colour: colour}
	for _, p := range r.Growth {
		l.LabelY = placeY(math.Log10(of(p).median()))
		l.Points += fmt.Sprintf("%.1f,%.1f ", placeX(math.Log10(float64(p.Attachments))), l.LabelY)
	}
	return l
}

// ticks are the powers of ten of an axis.
func ticks(first, last float64, place func(float64) float64) []tick {
	var all []tick
	for e := first; e <= last; e++ {
		all = append(all, tick{place(e), fmt.Sprintf("%g", math.Pow(10, e))})
	}
	return all
}

func placeX(log float64) float64 {
	return plotLeft + (log-firstX)/(lastX-firstX)*(plotRight-plotLeft)
}

func placeY(log float64) float64 {
	return plotBottom - (log-firstY)/(lastY-firstY)*(plotBottom-plotTop)
}
