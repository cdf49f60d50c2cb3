package main

import (
	"encoding/xml"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
)

// TestWrite checks tables and charts of invented figures, in which quantiles and goals are computed.
func TestWrite(t *testing.T) {
	r := &report{machine: "a machine & its disk", pairs: 4, growth: []point{
		{attachments: 10, plugin: sample{7, 8, 9}, own: sample{2}, held: sample{0.2}},
		{attachments: 10000, plugin: sample{200}, own: sample{2.1}, held: sample{0.21}},
	}}
	r.add(
		compared("allocate", "bare", comparison{sample{11, 9, 10, 30}, sample{8, 9, 20, 8}}, "ratio <= 1.35"),
		compared("release", "bare", comparison{sample{9}, sample{3}}, "ratio <= 1.40"),
		row{"pairs", "bare", "pairs/s", comparison{sample{90}, sample{100}}, "ratio >= 0.80"},
		compared("start", "empty", comparison{sample{300}, sample{100}}, "at most 150 ms more"),
		row{name: "held", reference: "Cilium", unit: "not measured", goal: "ratio <= 1.00"},
		single("memory", "MiB", 24.96, "<= 24"),
	)
	page := filepath.Join(t.TempDir(), "page.md")
	check.Must(t, os.Mkdir(strings.TrimSuffix(page, ".md"), 0o755))
	check.Must(t, os.WriteFile(page, []byte("before\n<!-- written by make bench: begin -->\nold\n<!-- written by make bench: end -->\nafter"), 0o600))
	r.write(page)
	for file, texts := range map[string][]string{
		".md": {
			"before\n", "\nafter", "a machine & its disk. Each figure is median / p99 of 4 alternating pairs",
			"| allocate | 10 / 30 ms | bare | 8.00 / 20 ms | 1.25 | ratio <= 1.35 |",
			"| release | 9.00 ms | bare | 3.00 ms | 3.00 | ratio <= 1.40 **missed** |",
			"| pairs | 90 pairs/s | bare | 100 pairs/s | 0.90 | ratio >= 0.80 |",
			"| start | 300 ms | empty | 100 ms | 3.00 | at most 150 ms more **missed** |",
			"| held | not measured | Cilium |  |  | ratio <= 1.00 |",
			"| memory | 25.0 MiB |  |  |  | <= 24 **missed** |",
			"| 10 | 8.00 / 9.00 ms | 2.00 ms | 0.200 ms |",
		},
		"/cases.svg":  {"a machine &amp; its disk", "release; beside bare", "3.00 (ratio &lt;= 1.40)", red},
		"/growth.svg": {"host-local, embedded", "10,000", "1000 ms", blue},
	} {
		data, err := os.ReadFile(strings.TrimSuffix(page, ".md") + file)
		check.Must(t, err)
		check.Contains(t, string(data), texts...)
		if file != ".md" {
			check.Must(t, xml.Unmarshal(data, new(struct{})))
		} else if strings.Contains(string(data), "old") {
			t.Errorf("the old table is still there:\n%s", data)
		}
	}
}

// TestAlternate checks that both are first in turn, and that the first runs do not count.
func TestAlternate(t *testing.T) {
	var order string
	runs := 0
	note := func(name string) func() []float64 {
		return func() []float64 {
			order += name
			runs++
			return []float64{float64(runs)}
		}
	}
	c := alternate(4, note("a"), note("b"))
	check.Equal(t, "order", order[2*warmUp:], "baabbaab")
	check.Equal(t, "figures", c[0], comparison{sample{12, 13, 16, 17}, sample{11, 14, 15, 18}})
}
