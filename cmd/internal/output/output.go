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
