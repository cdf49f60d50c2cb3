package cli

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/delegated-ipam/delegated-ipam/pkg/option"
)

// table is aligned columns of text.
type table struct{ w *tabwriter.Writer }

func newTable(w io.Writer) table {
	return table{tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)}
}

// row adds a line; an empty cell is "-", so that every line has as many cells.
func (t table) row(cells ...string) {
	for i, c := range cells {
		cells[i] = option.Printable(cmp.Or(c, "-"))
	}
	fmt.Fprintln(t.w, strings.Join(cells, "\t"))
}

// below adds a line to the row above it, in the column that has a number.
func (t table) below(column int, text string) {
	fmt.Fprintln(t.w, strings.Repeat("\t", column)+option.Printable(text))
}

func (t table) flush() error { return t.w.Flush() }

// oneLine is a text that cannot break a table.
func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }
