package main

import (
	"bytes"
	"fmt"
	"image/color"
	"slices"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

var (
	blue  = color.RGBA{R: 0x1d, G: 0x4e, B: 0xd8, A: 0xff}
	red   = color.RGBA{R: 0xb9, G: 0x1c, B: 0x1c, A: 0xff}
	brown = color.RGBA{R: 0xb4, G: 0x53, B: 0x09, A: 0xff}
	green = color.RGBA{R: 0x04, G: 0x78, B: 0x57, A: 0xff}
	grey  = color.RGBA{R: 0xdd, G: 0xdd, B: 0xdd, A: 0xff}
)

// widest is the ratio at which bars are cut.
const widest = 4.0

// typeface is metrically compatible with Arial.
var typeface = font.Font{Typeface: "Liberation", Variant: "Sans"}

// newPlot returns an empty plot on white.
func newPlot(title, machine string) *plot.Plot {
	plot.DefaultFont, plotter.DefaultFont = typeface, typeface
	p := plot.New()
	p.Title.Text = title + "\n" + machine
	p.Title.Padding = vg.Points(8)
	p.BackgroundColor = color.White
	return p
}

// drawCases draws one bar for each case, as long as its ratio, red if it misses its goal. The name of
// a case is above its bar and begins with it, so that it fits in any font.
func drawCases(machine string, cases []benchmark) ([]byte, error) {
	p := newPlot("Ours in proportion to the reference (1 = as the reference; red: misses the goal)", machine)
	p.X.Min, p.X.Max = 0, widest+1.2 // room for the label of the longest bar
	p.X.Tick.Marker = plot.ConstantTicks{{Value: 0, Label: "0"}, {Value: 1, Label: "1"}, {Value: 2, Label: "2"}, {Value: 3, Label: "3"}, {Value: 4, Label: "4"}}
	p.HideY()
	slices.Reverse(cases) // the axis begins at the bottom
	reached, missed := make(plotter.Values, len(cases)), make(plotter.Values, len(cases))
	figures, names := emptyLabels(len(cases)), emptyLabels(len(cases))
	for i, c := range cases {
		width := min(c.ratio, widest)
		if c.missed {
			missed[i] = width
		} else {
			reached[i] = width
		}
		figures.XYs[i] = plotter.XY{X: width + 0.05, Y: float64(i)}
		figures.Labels[i] = fmt.Sprintf("%.2f (%s)", c.ratio, c.goal)
		names.XYs[i] = plotter.XY{X: 0, Y: float64(i) + 0.45}
		names.Labels[i] = strings.ReplaceAll(c.name, "`", "")
	}
	for _, bars := range []struct {
		widths plotter.Values
		color  color.Color
	}{{reached, blue}, {missed, red}} {
		chart, err := plotter.NewBarChart(bars.widths, vg.Points(10))
		if err != nil {
			return nil, err
		}
		chart.Horizontal, chart.Color, chart.LineStyle.Width = true, bars.color, 0
		p.Add(chart)
	}
	one, err := plotter.NewLine(plotter.XYs{{X: 1, Y: -0.5}, {X: 1, Y: float64(len(cases)) - 0.5}})
	if err != nil {
		return nil, err
	}
	one.Color = grey
	p.Add(one)
	for _, labels := range []plotter.XYLabels{figures, names} {
		text, err := plotter.NewLabels(labels)
		if err != nil {
			return nil, err
		}
		for i := range text.TextStyle {
			text.TextStyle[i].YAlign = draw.YCenter
		}
		p.Add(text)
	}
	p.Y.Max = float64(len(cases)) - 0.4
	return svg(p, 9*vg.Inch, vg.Points(float64(80+32*len(cases))))
}

func emptyLabels(n int) plotter.XYLabels {
	return plotter.XYLabels{XYs: make(plotter.XYs, n), Labels: make([]string, n)}
}

// drawGrowth draws the time of an allocation by the number of attachments: the plugin's share,
// ours, and the time of a request that needs neither plugin nor disk.
func drawGrowth(machine string, points []point) ([]byte, error) {
	p := newPlot("An allocation for a new owner, by attachments held (medians)", machine)
	p.X.Label.Text, p.Y.Label.Text = "attachments", "ms"
	p.X.Scale, p.Y.Scale = plot.LogScale{}, plot.LogScale{}
	p.X.Tick.Marker, p.Y.Tick.Marker = plot.LogTicks{Prec: -1}, plot.LogTicks{Prec: -1}
	p.Legend.Top, p.Legend.Left, p.Legend.Padding = true, true, vg.Points(4)
	grid := plotter.NewGrid()
	grid.Horizontal.Color, grid.Vertical.Color = grey, grey
	p.Add(grid)
	for _, part := range []struct {
		name   string
		color  color.Color
		median func(point) float64
	}{
		{"plugin (DEL, ADD)", brown, func(p point) float64 { return p.plugin }},
		{"ours", blue, func(p point) float64 { return p.ours }},
		{"held, no plugin call", green, func(p point) float64 { return p.held }},
	} {
		values := make(plotter.XYs, len(points))
		for i, at := range points {
			values[i] = plotter.XY{X: at.attachments, Y: part.median(at)}
		}
		line, dots, err := plotter.NewLinePoints(values)
		if err != nil {
			return nil, err
		}
		line.Color, dots.Color = part.color, part.color
		p.Add(line, dots)
		p.Legend.Add(part.name, line)
	}
	return svg(p, 9*vg.Inch, 5*vg.Inch)
}

// svg renders a plot, with room for a last tick label that another font makes wider.
func svg(p *plot.Plot, width, height vg.Length) ([]byte, error) {
	canvas := vgsvg.New(width, height)
	p.Draw(draw.Crop(draw.New(canvas), vg.Points(6), vg.Points(-16), vg.Points(4), vg.Points(-4)))
	var b bytes.Buffer
	_, err := canvas.WriteTo(&b)
	return bytes.ReplaceAll(b.Bytes(), []byte("Liberation Sans"), []byte("Liberation Sans, Arial, Helvetica, sans-serif")), err
}
