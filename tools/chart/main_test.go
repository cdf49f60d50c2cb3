package main

import (
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const page = "text\n" + beginMark + `
a machine & its disk. Each figure is median / p99 of 4 alternating pairs of runs, or what the case says.

| case | ours | reference | is | ratio | goal |
|---|---|---|---|---|---|
| allocate | 10 / 30 ms | bare DEL + ADD | 8.00 / 20 ms | 1.25 | ratio <= 1.35 |
| release | 9.00 / 9.00 ms | bare DEL | 3.00 / 3.00 ms | 9.00 | ratio <= 1.40 **missed** |
| memory | 25.0 MiB |  |  |  | <= 25 |

| attachments | plugin | ours | held |
|---|---|---|---|
| 10 | 3.32 / 5.07 ms | 3.88 / 6.19 ms | 0.390 / 0.899 ms |
| 10,000 | 334 / 408 ms | 3.99 / 15.6 ms | 0.422 / 0.555 ms |
` + endMark + "\nmore\n"

// draw returns both charts of a page.
func drawPage(t *testing.T, text string) (string, error) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "page.md"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := run(filepath.Join(dir, "page.md"), dir); err != nil {
		return "", err
	}
	var charts string
	for _, name := range []string{"cases.svg", "growth.svg"} {
		chart, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		d := xml.NewDecoder(strings.NewReader(string(chart)))
		for err == nil {
			_, err = d.Token()
		}
		if !errors.Is(err, io.EOF) {
			t.Errorf("%s is not well-formed: %v", name, err)
		}
		charts += string(chart)
	}
	return charts, nil
}

func TestCharts(t *testing.T) {
	charts, err := drawPage(t, page)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"a machine &amp; its disk", "release; beside bare DEL", "9.00 (ratio &lt;= 1.40)", "#B91C1C", "plugin (DEL, ADD)", "10000"} {
		if !strings.Contains(charts, want) {
			t.Errorf("the charts lack %q", want)
		}
	}
	if strings.Contains(charts, "memory") {
		t.Error("a case without a ratio has a bar")
	}
	if again, err := drawPage(t, page); err != nil || again != charts {
		t.Errorf("the charts of the same page differ, %v", err)
	}
}

func TestBadPages(t *testing.T) {
	for name, text := range map[string]string{
		"no marks":             "text",
		"no rows":              beginMark + "\n" + endMark,
		"a ratio of words":     strings.Replace(page, "| 1.25 |", "| much |", 1),
		"a growth without one": strings.Replace(page, "3.88 / 6.19 ms", "missing", 1),
	} {
		if _, err := drawPage(t, text); err == nil {
			t.Errorf("%s: want an error", name)
		}
	}
}
