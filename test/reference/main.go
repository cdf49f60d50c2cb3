// Command reference writes the parts of the pages that restate the code, swagger.yaml, the shipped plugin profiles
// and the versions of the programs that tests run. It runs in the root of the repository. A part stands between two marks:
//
//	<!-- make generate: NAME -->
//	<!-- end -->
package main

import (
	"fmt"
	"log"
	"os"
	"strings"
)

func main() {
	log.SetFlags(0)
	for page, generate := range map[string]func(page string) (map[string]string, error){
		"docs/reference/api.md":      api,
		"docs/reference/profiles.md": profiles,
		"docs/reference/plugins.md":  dangers,
		"README.md":                  maturity,

		"docs/reference/command-line.md": flagTables,
		"docs/reference/metrics.md":      metricTables,
		"docs/operate/doctor.md":         checkTable,
		"docs/design/development.md":     packageGraph,
	} {
		if err := write(page, generate); err != nil {
			log.Fatalf("%s: %v", page, err)
		}
	}
}

// write replaces the parts of a page, which generate returns by name.
func write(page string, generate func(string) (map[string]string, error)) error {
	data, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	text := string(data)
	parts, err := generate(text)
	if err != nil {
		return err
	}
	for name, part := range parts {
		head, rest, begins := strings.Cut(text, mark(name))
		_, tail, ends := strings.Cut(rest, end)
		if !begins || !ends {
			return fmt.Errorf("no part between %q and %q", mark(name), end)
		}
		text = head + mark(name) + part + end + tail
	}
	return os.WriteFile(page, []byte(text), 0o644)
}

const end = "<!-- end -->\n"

func mark(name string) string { return "<!-- make generate: " + name + " -->\n" }

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
