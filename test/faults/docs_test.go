package faults

import (
	"maps"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// described is the row of a fault.
type described struct {
	// gets are the code and the words that the column of the client has.
	gets []string
	// journal and tests are the whole columns; empty if only the docs know.
	journal, tests string
}

// describe returns the row of a plugin fault, whose tests are those of the verbs
// ADD, CHECK and DEL.
func (f pluginFault) describe() described {
	d := described{gets: []string{strconv.Itoa(f.status), f.says}, journal: "none", tests: "A, C, D"}
	switch {
	case f.status == http.StatusCreated:
		d.journal = "`held`"
	case f.unknown:
		d.journal = "unknown: `adding`, or none"
	}
	if f.onlyADD {
		d.tests = "A"
	}
	return d
}

// The tables of docs/reliability.md say what the tests say: each fault has a
// row, with the code and the words that a client gets, and no row is without a
// test.
func TestTheTablesOfFaultsInTheDocsAreThoseOfTheTests(t *testing.T) {
	t.Parallel()
	want := map[string]map[string]described{"Storage faults": {}, "Damaged records": {}, "Plugin faults": {}}
	for name, f := range storageFaults() {
		want["Storage faults"][name] = described{gets: []string{"502 or 500", f.says}}
	}
	for name, f := range recordFaults() {
		want["Damaged records"][name] = described{gets: []string{"201", f.says}}
	}
	for name, f := range pluginFaults() {
		want["Plugin faults"][name] = f.describe()
	}
	data, err := os.ReadFile("../../docs/reliability.md")
	must(t, err)
	for section, faults := range want {
		rows := longestTable(string(data), section)
		if got, names := slices.Sorted(maps.Keys(rows)), slices.Sorted(maps.Keys(faults)); !slices.Equal(got, names) {
			t.Errorf("%s: the docs have\n%q\nthe tests have\n%q", section, got, names)
			continue
		}
		for name, f := range faults {
			wantRow(t, section+", "+name, rows[name], f)
		}
	}
}

// wantRow judges the columns of a fault: what the client gets, what the journal
// says, how it reacquires and, where there is one, the tests.
func wantRow(t *testing.T, name string, columns []string, f described) {
	t.Helper()
	for _, part := range f.gets {
		if !strings.Contains(columns[0], part) {
			t.Errorf("%s: the client gets %q by the docs; want it to say %q", name, columns[0], part)
		}
	}
	if f.journal != "" && columns[1] != f.journal {
		t.Errorf("%s: the journal says %q by the docs; want %q", name, columns[1], f.journal)
	}
	if f.tests != "" && columns[len(columns)-1] != f.tests {
		t.Errorf("%s: its tests are %q by the docs; want %q", name, columns[len(columns)-1], f.tests)
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

var row = regexp.MustCompile(`(?m)^\| ([^|]+) \| ([^|]+ \|.*) \|$`)

// longestTable returns the columns after the first of the longest table of a
// section, by the first, without its head.
func longestTable(doc, section string) map[string][]string {
	_, text, _ := strings.Cut(doc, "\n## "+section+"\n")
	text, _, _ = strings.Cut(text, "\n## ")
	longest := map[string][]string{}
	for part := range strings.SplitSeq(text, "\n\n") {
		rows := map[string][]string{}
		for _, m := range row.FindAllStringSubmatch(part, -1) {
			rows[m[1]] = strings.Split(m[2], " | ")
		}
		delete(rows, "fault")
		if len(rows) > len(longest) {
			longest = rows
		}
	}
	return longest
}
