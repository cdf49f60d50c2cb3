package main

import (
	"fmt"
	"html"
	"math"
	"os"
	"path/filepath"
	"strings"
)

const (
	blue, red, brown, green, grey = "#1d4ed8", "#b91c1c", "#b45309", "#047857", "#dddddd"
	chartWidth                    = 864
)

// write replaces the text between the marks of a page, PAGE.md, by the tables, and the charts in the directory PAGE.
func (r *report) write(page string) {
	const begin, end = "<!-- written by make bench: begin -->\n", "<!-- written by make bench: end -->\n"
	head, rest, begins := strings.Cut(string(must(os.ReadFile(page))), begin)
	_, tail, ends := strings.Cut(rest, end)
	if !begins || !ends {
		failIf(fmt.Errorf("%s: marks %q and %q not found; expected the tables between them", page, begin, end))
	}
	dir := strings.TrimSuffix(page, ".md")
	for file, text := range map[string]string{
		page: head + begin + r.markdown() + end + tail, filepath.Join(dir, "cases.svg"): r.casesChart(), filepath.Join(dir, "growth.svg"): r.growthChart(),
	} {
		failIf(os.WriteFile(file, []byte(text), 0o644))
	}
}

// svg is a drawing, whose head takes 50 pixels.
type svg struct{ strings.Builder }

func (s *svg) text(x, y float64, text string) {
	fmt.Fprintf(s, "<text x=\"%.1f\" y=\"%.1f\">%s</text>\n", x, y, html.EscapeString(text))
}

func (s *svg) line(x1, y1, x2, y2 float64, color string) {
	fmt.Fprintf(s, "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=%q/>\n", x1, y1, x2, y2, color)
}

func (s *svg) document(height float64, title, machine string) string {
	s.text(10, 20, title)
	s.text(10, 38, machine)
	return fmt.Sprintf("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %.0f\" font-family=\"Liberation Sans, Arial, Helvetica, sans-serif\" font-size=\"12\">\n"+
		"<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n%s</svg>\n", chartWidth, height, s)
}

// casesChart draws one bar for each case with a reference, as long as its ratio, red if it misses its goal.
func (r *report) casesChart() string {
	const left, unit, widest = 10.0, 160.0, 4.0
	var s svg
	y := 50.0
	for _, row := range r.rows {
		if len(row.theirs) == 0 {
			continue
		}
		color, width := blue, min(row.ratio(), widest)*unit
		if row.missed() {
			color = red
		}
		s.text(left, y+12, strings.ReplaceAll(row.name, "`", "")+"; beside "+row.reference)
		fmt.Fprintf(&s, "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"10\" fill=%q/>\n", left, y+17, width, color)
		s.line(left+unit, y+14, left+unit, y+32, grey)
		s.text(left+width+5, y+26, fmt.Sprintf("%.2f (%s)", row.ratio(), row.goal))
		y += 32
	}
	return s.document(y+10, "Ours in proportion to the reference (line: as the reference; red: misses the goal)", r.machine)
}

// growthChart draws the medians of the points, with logarithmic axes: the plugin's share of an allocation, ours, and the
// time of a request that needs neither plugin nor disk.
func (r *report) growthChart() string {
	const left, top, height, decade = 60.0, 60.0, 370.0, 240.0
	lines := []struct {
		name, color string
		of          func(point) sample
	}{
		{"host-local, embedded", brown, func(p point) sample { return p.plugin }},
		{"ours", blue, func(p point) sample { return p.own }},
		{"held, no plugin call", green, func(p point) sample { return p.held }},
	}
	low, high := math.Inf(1), math.Inf(-1)
	for _, p := range r.growth {
		for _, l := range lines {
			log := math.Log10(l.of(p).quantile(0.5))
			low, high = min(low, math.Floor(log)), max(high, math.Ceil(log))
		}
	}
	at := func(attachments int, ms float64) (x, y float64) {
		return left + (math.Log10(float64(attachments))-1)*decade, top + height*(high-math.Log10(ms))/(high-low)
	}
	var s svg
	for log := low; log <= high; log++ {
		_, y := at(10, math.Pow(10, log))
		s.line(left, y, left+3*decade, y, grey)
		s.text(10, y+4, fmt.Sprintf("%g ms", math.Pow(10, log)))
	}
	for i, p := range r.growth {
		x, bottom := at(p.attachments, math.Pow(10, low))
		s.line(x, top, x, bottom, grey)
		s.text(x-12, bottom+18, thousands(p.attachments))
		for _, l := range lines {
			_, y := at(p.attachments, l.of(p).quantile(0.5))
			fmt.Fprintf(&s, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3\" fill=%q/>\n", x, y, l.color)
			if i > 0 {
				beforeX, beforeY := at(r.growth[i-1].attachments, l.of(r.growth[i-1]).quantile(0.5))
				s.line(beforeX, beforeY, x, y, l.color)
			}
		}
	}
	for i, l := range lines {
		y := top + 16*float64(i+1)
		s.line(left+10, y-4, left+30, y-4, l.color)
		s.text(left+36, y, l.name)
	}
	return s.document(470, "An allocation for a new owner, by attachments held (medians)", r.machine)
}
