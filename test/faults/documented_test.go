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

	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

// documentedFault is the expected row of a fault.
type documentedFault struct {
	// response has the status and the error in the column of the client.
	response []string
	// journal and tests are the complete columns; empty if any text is allowed.
	journal, tests string
}

// documented returns the row of a plugin fault, whose tests are named by the verbs ADD, CHECK and
// DEL.
func (f pluginFault) documented() documentedFault {
	d := documentedFault{response: []string{strconv.Itoa(f.status), f.err}, journal: "none", tests: "A, C, D"}
	switch {
	case f.status == http.StatusCreated:
		d.journal = "`held`"
	case f.unknown:
		d.journal = "unknown"
	}
	if f.onlyADD {
		d.tests = "A"
	}
	return d
}

// The tables of docs/design/reliability.md have a row for each fault, with its response, and no others.
//
//evidence:design/reliability the tables of this page have every fault, and the campaign's table every class
func TestDocumentedFaults(t *testing.T) {
	t.Parallel()
	want := map[string]map[string]documentedFault{"Storage faults": {}, "Damaged records": {}, "Plugin faults": {}}
	for name, f := range storageFaults() {
		want["Storage faults"][name] = documentedFault{response: []string{"502 or 500", f.err}}
	}
	for name, f := range recordFaults() {
		want["Damaged records"][name] = documentedFault{response: []string{"201", f.reason}}
	}
	for name, f := range pluginFaults() {
		want["Plugin faults"][name] = f.documented()
	}
	data, err := os.ReadFile("../../docs/design/reliability.md")
	harness.Must(t, err)
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

// wantRow compares the columns of a fault: the response, the state in the journal, and the tests.
func wantRow(t *testing.T, name string, columns []string, f documentedFault) {
	t.Helper()
	for _, part := range f.response {
		if !strings.Contains(columns[0], part) {
			t.Errorf("%s: in the docs the client gets %q; want it to contain %q", name, columns[0], part)
		}
	}
	if f.journal != "" && columns[1] != f.journal {
		t.Errorf("%s: in the docs the journal has %q; want %q", name, columns[1], f.journal)
	}
	if f.tests != "" && columns[len(columns)-1] != f.tests {
		t.Errorf("%s: in the docs its tests are %q; want %q", name, columns[len(columns)-1], f.tests)
	}
}

// The table of the last campaign has a row for each class, without violations.
//
//evidence:design/reliability the tables of this page have every fault, and the campaign's table every class
func TestDocumentedCampaign(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile("../../docs/design/reliability.md")
	harness.Must(t, err)
	_, text, _ := strings.Cut(string(data), "\n## Campaign\n")
	var classesInDocs []string
	for _, m := range campaignRow.FindAllStringSubmatch(text, -1) {
		classesInDocs = append(classesInDocs, m[1])
		if m[2] != "0" {
			t.Errorf("%s: %s violations in the docs; want 0", m[1], m[2])
		}
	}
	if !slices.Equal(classesInDocs, classes()) {
		t.Errorf("the docs have the classes\n%q\nthe tests have\n%q", classesInDocs, classes())
	}
}

// campaignRow matches a line of campaign.sh: the class and its violations.
var campaignRow = regexp.MustCompile(`(?m)^\| ([^|]+) \| \d+ \| \d+ \| (\d+) \| \d+ \| \d+ s \|$`)

var row = regexp.MustCompile(`(?m)^\| ([^|]+) \| ([^|]+ \|.*) \|$`)

// longestTable returns the rows of the longest table in a section, without its header: the other
// columns by the first one.
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
