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
	"text/tabwriter"
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
	out  io.Writer
	text bytes.Buffer
	// columns aligns the cells of consecutive lines in text.
	columns *tabwriter.Writer
}

// gap is between two columns.
const gap = 3

// NewTable returns an empty table that is printed to w.
func NewTable(w io.Writer) Table {
	p := &page{out: w}
	p.columns = tabwriter.NewWriter(&p.text, 0, 0, gap, ' ', 0)
	return Table{p}
}

// Row adds a line; an empty cell is printed as "-", so that every line has as many cells.
func (t Table) Row(cells ...string) {
	for i, c := range cells {
		cells[i] = cell(cmp.Or(c, "-"))
	}
	fmt.Fprintln(t.columns, strings.Join(cells, "\t"))
}

// Optional adds a line unless its value is empty.
func (t Table) Optional(name, value string) {
	if value != "" {
		t.Row(name, value)
	}
}

// Below adds lines to the row above, in its last column, which has this index.
func (t Table) Below(column int, lines ...string) {
	for _, line := range lines {
		fmt.Fprintln(t.columns, strings.Repeat("\t", column)+cell(line))
	}
}

// Line adds a line of text without columns, which ends the columns above it.
func (t Table) Line(text string) { fmt.Fprintln(t.columns, cell(text)) }

// EndColumns makes the columns of further rows independent of those above.
func (t Table) EndColumns() { _ = t.columns.Flush() } // to memory

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

// Wrap returns text as lines of at most width characters, broken at spaces; a longer word is a line.
func Wrap(text string, width int) (lines []string) {
	for _, word := range strings.Fields(text) {
		if last := len(lines) - 1; last >= 0 && utf8.RuneCountInString(lines[last]+" "+word) <= width {
			lines[last] += " " + word
		} else {
			lines = append(lines, word)
		}
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
