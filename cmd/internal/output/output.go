// Package output prints the results of commands: JSON, tables, times.
package output

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/delegated-ipam/delegated-ipam/internal/logging"
	"github.com/delegated-ipam/delegated-ipam/internal/options"
)

// JSON prints a value with indentation.
func JSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

// Print prints a value by the value of --output: as JSON, or as the table that fill writes.
func Print(w io.Writer, format string, v any, fill func(Table)) error {
	if format == options.OutputJSON {
		return JSON(w, v)
	}
	t := NewTable(w)
	fill(t)
	return t.Flush()
}

// Table is a page of lines and aligned columns. Flush prints it; no other method can fail.
type Table struct{ *page }

type page struct {
	out io.Writer
	// text are the lines with complete columns, and rows the further ones.
	text      bytes.Buffer
	rows      []row
	shrinking []shrinking
}

type row struct {
	cells []string
	wrap  bool // the last cell
}

// shrinking is a column that becomes narrower, but not than least, in a table wider than Width.
type shrinking struct{ column, least int }

// NewTable returns an empty table that is printed to w.
func NewTable(w io.Writer) Table { return Table{&page{out: w}} }

// Row adds a line; an empty cell is printed as "-", so that every line has as many cells.
func (t Table) Row(cells ...string) {
	for i, c := range cells {
		cells[i] = cell(cmp.Or(c, "-"))
	}
	t.rows = append(t.rows, row{cells: cells})
}

// Optional adds a line unless its value is empty.
func (t Table) Optional(name, value string) {
	if value != "" {
		t.Row(name, value)
	}
}

// Below adds a line to the row above it, in the column with this index.
func (t Table) Below(column int, text string) { t.below(column, text, false) }

// WrapBelow adds text to the row above it, in lines that fit the column with this index.
func (t Table) WrapBelow(column int, text string) {
	if text != "" {
		t.below(column, text, true)
	}
}

func (t Table) below(column int, text string, wrap bool) {
	t.rows = append(t.rows, row{append(make([]string, column), cell(text)), wrap})
}

// Shrink makes a column narrower if the table is wider than Width, before the columns of later calls. Of a cell that does
// not fit the middle is omitted.
func (t Table) Shrink(column, least int) {
	t.shrinking = append(t.shrinking, shrinking{column, least})
}

// Line adds a line of text without columns, which ends the columns above it.
func (t Table) Line(text string) {
	t.EndColumns()
	fmt.Fprintln(&t.text, cell(text))
}

const (
	// gap is between two columns, and minWrapped the least width of wrapped text.
	gap, minWrapped = 3, 24
)

// EndColumns makes the columns of further rows independent of those above.
func (t Table) EndColumns() {
	// widths are those of the columns, lasts those of the cells that end a row: no column follows them.
	var widths, lasts []int
	for _, r := range t.rows {
		for len(widths) < len(r.cells) {
			widths, lasts = append(widths, 0), append(lasts, 0)
		}
		last := len(r.cells) - 1
		for i, c := range r.cells[:last] {
			widths[i] = max(widths[i], utf8.RuneCountInString(c))
		}
		if r.wrap {
			lasts[last] = max(lasts[last], minWrapped)
		} else {
			lasts[last] = max(lasts[last], utf8.RuneCountInString(r.cells[last]))
		}
	}
	start := func(column int) (n int) {
		for _, width := range widths[:column] {
			n += width + gap
		}
		return n
	}
	for _, s := range t.shrinking {
		if s.column >= len(widths) {
			continue // a table without rows
		}
		excess := 0
		for i, last := range lasts {
			if last > 0 {
				excess = max(excess, start(i)+last-Width)
			}
		}
		widths[s.column] = min(widths[s.column], max(s.least, widths[s.column]-excess))
	}
	for _, r := range t.rows {
		last := len(r.cells) - 1
		for i, c := range r.cells[:last] {
			fmt.Fprintf(&t.text, "%-*s", widths[i]+gap, Middle(c, widths[i]))
		}
		lines := r.cells[last:]
		if r.wrap {
			lines = Wrap(r.cells[last], max(minWrapped, Width-start(last)))
		}
		fmt.Fprintln(&t.text, strings.Join(lines, "\n"+strings.Repeat(" ", start(last))))
	}
	t.rows, t.shrinking = nil, nil
}

// Flush prints the table.
func (t Table) Flush() error {
	t.EndColumns()
	_, err := t.text.WriteTo(t.out)
	return err
}

// cell returns text that cannot break a table or control a terminal.
func cell(text string) string {
	if strings.ContainsAny(text, "\t\r\n") {
		return logging.OneLine(text)
	}
	return logging.Printable(text)
}

// Natural compares texts with numbers by their values: "node-2" is before "node-10".
func Natural(a, b string) int { return cmp.Or(cmp.Compare(padded(a), padded(b)), cmp.Compare(a, b)) }

var numbers = regexp.MustCompile("[0-9]+")

// padded returns text with equally long numbers.
func padded(text string) string {
	return numbers.ReplaceAllStringFunc(text, func(n string) string { return fmt.Sprintf("%20s", strings.TrimLeft(n, "0")) })
}

// Width is the number of columns of a terminal that a table for people fits.
const Width = 80

// Middle returns text with at most width characters: if it has more, without some in its middle.
func Middle(text string, width int) string {
	all := []rune(text)
	if len(all) <= width {
		return text
	}
	end := (width - 1) / 2
	return string(all[:width-1-end]) + "…" + string(all[len(all)-end:])
}

// Wrap returns text as lines of at most width characters, broken at spaces where that is possible.
func Wrap(text string, width int) (lines []string) {
	line := []rune{}
	for _, word := range strings.Fields(text) {
		rest := []rune(word)
		if len(line) > 0 && len(line)+1+len(rest) > width {
			lines, line = append(lines, string(line)), line[:0]
		}
		if len(line) > 0 {
			line = append(line, ' ')
		}
		for len(rest) > width {
			lines, rest = append(lines, string(rest[:width])), rest[width:]
		}
		line = append(line, rest...)
	}
	if len(line) > 0 {
		lines = append(lines, string(line))
	}
	return lines
}

// Ago returns how long before now t was, such as "5m ago"; empty for the zero time.
func Ago(t, now time.Time) string {
	if t.IsZero() {
		return ""
	}
	return Duration(now.Sub(t)) + " ago"
}

// Duration returns a duration in at most two units, such as "1d1h". A negative one is "0s": the
// clocks of two processes differ a little.
func Duration(d time.Duration) string {
	units := []time.Duration{24 * time.Hour, time.Hour, time.Minute, time.Second, time.Nanosecond}
	for i, name := range []string{"d", "h", "m", "s"} {
		if d < units[i] {
			continue
		}
		text := fmt.Sprintf("%d%s", d/units[i], name)
		if rest := d % units[i] / units[i+1]; rest > 0 && name != "s" {
			text += fmt.Sprintf("%d%c", rest, "hms"[i])
		}
		return text
	}
	return "0s"
}
