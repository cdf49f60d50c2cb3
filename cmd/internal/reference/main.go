// Command reference rewrites what is generated from the code and the chart (make generate): the
// text between a marker with a name and the next end marker.
package main

import (
	"fmt"
	"os"
	"regexp"
	"strings"
)

// generated is a table between its markers.
var generated = regexp.MustCompile(`(?s)<!-- generated: ([\w -]+) -->\n(.*?)<!-- end -->\n`)

func main() {
	metrics, err := metricTables()
	if err != nil {
		fail(err)
	}
	values, err := valueTable(chartValues)
	if err != nil {
		fail(fmt.Errorf("%s: %w", chartValues, err))
	}
	packages, err := packageGraph()
	if err != nil {
		fail(err)
	}
	for path, tables := range map[string]map[string]string{
		"docs/reference/command-line.md": flagTables(),
		"docs/reference/metrics.md":      metrics,
		"docs/operate/doctor.md":         {"checks": checkTable()},
		"deploy/chart/README.md":         {"values": values},
		"docs/design/development.md":     {"packages": packages},
	} {
		text, err := os.ReadFile(path)
		if err == nil {
			text, err = fill(text, tables)
		}
		if err == nil {
			err = os.WriteFile(path, text, 0o644)
		}
		if err != nil {
			fail(fmt.Errorf("%s: %w", path, err))
		}
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "Error:", err)
	os.Exit(1)
}

// fill returns a page with its tables. Each marker needs a table, and each table a marker.
func fill(page []byte, tables map[string]string) ([]byte, error) {
	filled := generated.ReplaceAllStringFunc(string(page), func(block string) string {
		name := generated.FindStringSubmatch(block)[1]
		return fmt.Sprintf("<!-- generated: %s -->\n%s<!-- end -->\n", name, tables[name])
	})
	for name, table := range tables {
		if !strings.Contains(filled, "<!-- generated: "+name+" -->\n"+table+"<!-- end -->\n") {
			return nil, fmt.Errorf("no marker of %q", name)
		}
	}
	if strings.Contains(filled, "-->\n<!-- end -->") {
		return nil, fmt.Errorf("a marker without a table; want %d", len(tables))
	}
	return []byte(filled), nil
}

func code(text string) string {
	if text == "" {
		return ""
	}
	return "`" + text + "`"
}

// table returns the rows below their head.
func table(rows [][]string, head ...string) string {
	var text strings.Builder
	for _, cells := range append([][]string{head, nil}, rows...) {
		if cells == nil {
			text.WriteString("|" + strings.Repeat("---|", len(head)) + "\n")
			continue
		}
		text.WriteString("| " + strings.ReplaceAll(strings.Join(cells, "\x00"), "|", `\|`) + " |\n")
	}
	return strings.ReplaceAll(text.String(), "\x00", " | ")
}
