package contract

import (
	"cmp"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

// documentedDifference is a row of the table, and which requests show it.
type documentedDifference struct {
	// cilium and ours are the columns. For a difference of the code they begin with the code, or with
	// "as" for any.
	cilium, ours string
	differenceRule
}

// differenceRule decides which differences belong to a row.
type differenceRule struct {
	// part are the parts of the difference, separated by commas; empty for the code.
	part string
	// labels of a request must have one of the values.
	labels map[string][]string
}

func (d documentedDifference) matches(r request, found difference) bool {
	if !slices.Contains(strings.Split(cmp.Or(d.part, "code"), ", "), found.part) {
		return false
	}
	head := strings.EqualFold(r.method, http.MethodHead)
	if found.part == "code" && !(allows(d.cilium, found.cilium, head) && allows(d.ours, found.ours, head)) {
		return false
	}
	for name, values := range d.labels {
		if !slices.Contains(values, r.labels[name]) {
			return false
		}
	}
	return true
}

// allows reports whether a column has a code, or is "as …" and has none. The response to a HEAD
// request has no body.
func allows(column, code string, head bool) bool {
	if strings.HasPrefix(column, "as ") {
		return true
	}
	codes, _, _ := strings.Cut(column, ",")
	return slices.ContainsFunc(strings.Split(codes, " or "), func(c string) bool {
		return c == code || head && strings.HasPrefix(c, code+" with ")
	})
}

// documentedDifferences returns the rows of the table by their first column. The docs and
// differenceRules must have the same.
func documentedDifferences(t *testing.T) map[string]documentedDifference {
	t.Helper()
	text, err := os.ReadFile(apiPage)
	harness.Must(t, err)
	_, section, found := strings.Cut(string(text), "\n## Differences to the agent's answers\n")
	if !found {
		t.Fatal("docs/reference/api.md has no section about the differences")
	}
	rules, rows := differenceRules(), map[string]documentedDifference{}
	for line := range strings.Lines(section) {
		if strings.HasPrefix(line, "## ") {
			break
		}
		columns := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), " | ")
		if !strings.HasPrefix(line, "| ") || len(columns) != 3 || strings.HasPrefix(line, "| request or") {
			continue
		}
		name := strings.TrimSpace(columns[0])
		rule, ok := rules[name]
		if !ok {
			t.Errorf("no rule for the row %q of docs/reference/api.md", name)
			continue
		}
		rows[name] = documentedDifference{strings.TrimSpace(columns[1]), strings.TrimSpace(columns[2]), rule}
	}
	for name := range rules {
		if _, ok := rows[name]; !ok {
			t.Errorf("docs/reference/api.md lacks the row %q", name)
		}
	}
	if len(rows) == 0 {
		t.Fatal("the section has no rows")
	}
	return rows
}

func TestAllows(t *testing.T) {
	for _, c := range []struct {
		column, code string
		want         bool
	}{
		{"404", "404", true},
		{"404", "404 with a text", false},
		{"404 with a text, because", "404 with a text", true},
		{"200 or 404", "404", true},
		{"200 or 404", "409", false},
		{"as any owner", "409", true},
		{"the same address", "409", false},
	} {
		if got := allows(c.column, c.code, false); got != c.want {
			t.Errorf("%q allows %q: %t; want %t", c.column, c.code, got, c.want)
		}
	}
	if !allows("431 with a body", "431", true) || allows("431 with a body", "43", true) {
		t.Error("the answer to HEAD has the code of the column, without a body")
	}
}
