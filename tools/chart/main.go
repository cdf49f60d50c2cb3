// Command chart draws the charts of docs/reference/performance.md from the tables that "make bench" writes
// into that page: cases.svg has the ratio of each case, growth.svg the times by the number of
// attachments.
//
// Usage: chart PAGE DIR
package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: chart PAGE DIR")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "chart:", err)
		os.Exit(1)
	}
}

// run reads the tables of a page and writes the charts into a directory.
func run(page, directory string) error {
	text, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	tables, err := parse(string(text))
	if err != nil {
		return fmt.Errorf("%s: %w", page, err)
	}
	cases, casesErr := drawCases(tables.machine, tables.cases)
	growth, growthErr := drawGrowth(tables.machine, tables.growth)
	if err := errors.Join(casesErr, growthErr); err != nil {
		return err
	}
	return errors.Join(
		os.WriteFile(filepath.Join(directory, "cases.svg"), cases, 0o644),
		os.WriteFile(filepath.Join(directory, "growth.svg"), growth, 0o644),
	)
}
