package output

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/delegated-ipam/delegated-ipam/internal/logging"
)

// Table is aligned columns of text. Flush prints it.
type Table struct{ w *tabwriter.Writer }

// NewTable returns an empty table that is printed to w.
func NewTable(w io.Writer) Table {
	return Table{tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)}
}

// Row adds a line; an empty cell is printed as "-", so that every line has as many cells.
func (t Table) Row(cells ...string) {
	for i, c := range cells {
		cells[i] = logging.Printable(cmp.Or(c, "-"))
	}
	fmt.Fprintln(t.w, strings.Join(cells, "\t"))
}

// Below adds a line to the row above it, in the column with this index.
func (t Table) Below(column int, text string) {
	fmt.Fprintln(t.w, strings.Repeat("\t", column)+logging.Printable(text))
}

// Flush prints the table.
func (t Table) Flush() error { return t.w.Flush() }
