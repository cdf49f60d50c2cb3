// Package output prints the results of commands: JSON, tables, times.
package output

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/logging"
)

// JSON prints a value with indentation.
func JSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

// Table is a page of lines and aligned columns. Flush prints it; no other method can fail.
type Table struct {
	columns *tabwriter.Writer
	page    *bytes.Buffer
	out     io.Writer
}

// NewTable returns an empty table that is printed to w.
func NewTable(w io.Writer) Table {
	page := &bytes.Buffer{}
	return Table{tabwriter.NewWriter(page, 0, 0, 3, ' ', 0), page, w}
}

// Row adds a line; an empty cell is printed as "-", so that every line has as many cells.
func (t Table) Row(cells ...string) {
	for i, c := range cells {
		cells[i] = cell(cmp.Or(c, "-"))
	}
	fmt.Fprintln(t.columns, strings.Join(cells, "\t"))
}

// Below adds a line to the row above it, in the column with this index.
func (t Table) Below(column int, text string) {
	fmt.Fprintln(t.columns, strings.Repeat("\t", column)+cell(text))
}

// Line adds a line of text without columns, which ends the columns above it.
func (t Table) Line(text string) { fmt.Fprintln(t.columns, cell(text)) }

// EndColumns makes the columns of further rows independent of those above.
func (t Table) EndColumns() { _ = t.columns.Flush() } // a bytes.Buffer returns no error

// Flush prints the table.
func (t Table) Flush() error {
	t.EndColumns()
	_, err := t.page.WriteTo(t.out)
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
func Natural(a, b string) int {
	whole := cmp.Compare(a, b)
	for a != "" && b != "" {
		var byText, byNumber int
		byText, a, b = compareStart(a, b, func(r rune) bool { return !isDigit(r) }, strings.Compare)
		byNumber, a, b = compareStart(a, b, isDigit, func(m, n string) int {
			m, n = strings.TrimLeft(m, "0"), strings.TrimLeft(n, "0")
			return cmp.Or(cmp.Compare(len(m), len(n)), cmp.Compare(m, n))
		})
		if by := cmp.Or(byText, byNumber); by != 0 {
			return by
		}
	}
	return cmp.Or(cmp.Compare(len(a), len(b)), whole)
}

// compareStart compares the starts of two texts that have characters of one kind, and returns the rests.
func compareStart(a, b string, kind func(rune) bool, compare func(a, b string) int) (result int, restA, restB string) {
	restA, restB = strings.TrimLeftFunc(a, kind), strings.TrimLeftFunc(b, kind)
	return compare(strings.TrimSuffix(a, restA), strings.TrimSuffix(b, restB)), restA, restB
}

func isDigit(r rune) bool { return '0' <= r && r <= '9' }

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
