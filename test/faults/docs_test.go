package faults

import (
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// The tables of docs/reliability.md say what the tests say: each fault has a
// row, with the code and the words that a client gets, and no row is without a
// test.
func TestTheTablesOfFaultsInTheDocsAreThoseOfTheTests(t *testing.T) {
	t.Parallel()
	want := map[string]map[string][]string{"Storage faults": {}, "Damaged records": {}, "Plugin faults": {}}
	for name, f := range storageFaults() {
		want["Storage faults"][name] = []string{"502 or 500", f.says}
	}
	for name, f := range recordFaults() {
		want["Damaged records"][name] = []string{"201", f.says}
	}
	for name, f := range pluginFaults() {
		want["Plugin faults"][name] = []string{strconv.Itoa(f.status), f.says}
	}
	data, err := os.ReadFile("../../docs/reliability.md")
	must(t, err)
	for section, faults := range want {
		rows := longestTable(string(data), section)
		if got, names := slices.Sorted(maps.Keys(rows)), slices.Sorted(maps.Keys(faults)); !slices.Equal(got, names) {
			t.Errorf("%s: the docs have\n%q\nthe tests have\n%q", section, got, names)
		}
		for name, says := range faults {
			for _, part := range says {
				if !strings.Contains(rows[name], part) {
					t.Errorf("%s, %s: the client gets %q by the docs; want it to say %q", section, name, rows[name], part)
				}
			}
		}
	}
}

// The table of the last campaign has a row for each class, in which nothing is wrong.
func TestTheTableOfTheCampaignInTheDocsHasEveryClassAndNoViolation(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile("../../docs/reliability.md")
	must(t, err)
	_, text, _ := strings.Cut(string(data), "\n## Campaign\n")
	var classesInDocs []string
	for _, m := range campaignRow.FindAllStringSubmatch(text, -1) {
		classesInDocs = append(classesInDocs, m[1])
		if m[2] != "0" {
			t.Errorf("%s: %s violations by the docs; want 0", m[1], m[2])
		}
	}
	if !slices.Equal(classesInDocs, classes()) {
		t.Errorf("the docs have the classes\n%q\nthe tests have\n%q", classesInDocs, classes())
	}
}

// campaignRow is what campaign.sh prints of a class: its name and its violations.
var campaignRow = regexp.MustCompile(`(?m)^\| ([^|]+) \| \d+ \| \d+ \| (\d+) \| \d+ \| \d+ s \|$`)

var row = regexp.MustCompile(`(?m)^\| ([^|]+) \| ([^|]+) \|.*\|$`)

// longestTable returns the first two columns of the longest table of a section,
// without its head.
func longestTable(doc, section string) map[string]string {
	_, text, _ := strings.Cut(doc, "\n## "+section+"\n")
	text, _, _ = strings.Cut(text, "\n## ")
	longest := map[string]string{}
	for part := range strings.SplitSeq(text, "\n\n") {
		rows := map[string]string{}
		for _, m := range row.FindAllStringSubmatch(part, -1) {
			rows[m[1]] = m[2]
		}
		delete(rows, "fault")
		if len(rows) > len(longest) {
			longest = rows
		}
	}
	return longest
}
