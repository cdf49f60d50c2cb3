// Package scenario reads tests that are text, from files in testdata.
package scenario

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// Each runs a test for each scenario of the files that match a pattern. A scenario begins with a line "== name"; the test
// gets the lines that follow, without empty ones and comments, which begin with "#". The lines of a table begin with "|":
// the scenario runs once for each row, with its values in place of $column. With several tables, between which there are
// other lines, it runs for each combination of their rows.
func Each(t *testing.T, pattern string, test func(t *testing.T, lines []string)) {
	t.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) == 0 {
		t.Fatalf("no file matches %s: %v", pattern, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, part := range strings.Split("\n"+string(text), "\n== ")[1:] {
			name, body, _ := strings.Cut(part, "\n")
			lines, tables := parse(body)
			for _, row := range combined(tables) {
				t.Run(filepath.Base(file)+"/"+name+row.name, func(t *testing.T) { test(t, row.fill(lines)) })
			}
		}
	}
}

// row is a row of a table, or of several.
type row struct {
	name string
	fill func(lines []string) []string
}

// parse returns the lines of a scenario, and the rows of each of its tables.
func parse(body string) (lines []string, tables [][]row) {
	var columns []string
	for line := range strings.SplitSeq(body, "\n") {
		line = strings.TrimSpace(line)
		cells, isRow := strings.CutPrefix(line, "|")
		switch values := strings.Split(cells+" ", " | "); {
		case line == "" || line[0] == '#':
		case !isRow:
			columns, lines = nil, append(lines, line)
		case columns == nil:
			columns, tables = values, append(tables, nil)
		default:
			tables[len(tables)-1] = append(tables[len(tables)-1], newRow(columns, values))
		}
	}
	return lines, tables
}

func newRow(columns, values []string) row {
	var pairs []string
	for i, column := range columns {
		pairs = append(pairs, "$"+strings.TrimSpace(column), strings.TrimSpace(values[i]))
	}
	replacer := strings.NewReplacer(pairs...)
	return row{": " + strings.ReplaceAll(pairs[1], "/", " "), func(lines []string) []string {
		filled := slices.Clone(lines)
		for i, line := range lines {
			filled[i] = replacer.Replace(line)
		}
		return filled
	}}
}

// combined returns each combination of rows. Without a table that is one row without values. A value of a later
// table may have columns of an earlier one, such as abbreviations in a table of one row.
func combined(tables [][]row) []row {
	all := []row{{"", slices.Clone[[]string]}}
	for _, table := range tables {
		var next []row
		for _, before := range all {
			for _, r := range table {
				name := before.name + r.name
				if len(table) == 1 { // abbreviations
					name = before.name
				}
				next = append(next, row{name, func(lines []string) []string { return before.fill(r.fill(lines)) }})
			}
		}
		all = next
	}
	return all
}

// word matches a word, which may be quoted.
var word = regexp.MustCompile(`"(?:\\.|[^"\\])*"|\S+`)

// Words returns the words of a text; one with spaces is quoted.
func Words(text string) []string {
	words := word.FindAllString(text, -1)
	for i, w := range words {
		if unquoted, err := strconv.Unquote(w); err == nil {
			words[i] = unquoted
		}
	}
	return words
}

// Numbers returns the numbers of words such as "1" and "3-5".
func Numbers(t testing.TB, words []string) (all []int) {
	t.Helper()
	for _, w := range words {
		first, last, isRange := strings.Cut(w, "-")
		from, err := strconv.Atoi(first)
		to := from
		if err == nil && isRange {
			to, err = strconv.Atoi(last)
		}
		if err != nil {
			t.Fatalf("%q: %v; want a number or a range of numbers", w, err)
		}
		for n := from; n <= to; n++ {
			all = append(all, n)
		}
	}
	return all
}
