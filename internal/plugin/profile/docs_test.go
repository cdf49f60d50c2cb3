package profile

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite the table of profiles in the documentation")

// The pages of the fields and of the plugins.
const (
	page        = "../../../docs/reference/profiles.md"
	pluginsPage = "../../../docs/reference/plugins.md"
)

// columns are the fields of the table. The others have texts, which TestDocsDangers compares, or
// directories.
var columns = []string{
	"repeatedAdd", "verifyBy", "checkProves", "addOutlivesSeconds", "delGivesUpSeconds", "del", "store", "delFromAnyNode", "lookup",
	"waitsForConfig", "requests", "requestForm", "podIdentity", "namespace", "networkName", "statusProves", "unique",
}

// TestDocsTable compares the embedded profiles with their rows on the page: each profile has a row,
// and each row a profile.
func TestDocsTable(t *testing.T) {
	set, err := Load()
	if err != nil {
		t.Fatal(err)
	}
	const begin, end = "<!-- profiles -->\n", "<!-- end of profiles -->\n"
	text := readPage(t, page)
	before, rest, found := strings.Cut(text, begin)
	table, after, ended := strings.Cut(rest, end)
	if !found || !ended {
		t.Fatalf("%s has no table between %q and %q", page, begin, end)
	}
	want := profileTable(t, set)
	if *update {
		if err := os.WriteFile(page, []byte(before+begin+want+end+after), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if table != want {
		t.Errorf("the table of profiles is\n%s\nwant\n%s\n(go test ./internal/plugin/profile -update rewrites it)", table, want)
	}
}

// profileTable returns one row for each profile. A field that is left out is shown as "-".
func profileTable(t *testing.T, set Set) string {
	t.Helper()
	var b strings.Builder
	fmt.Fprintf(&b, "| plugin | `%s` |\n|---|%s\n", strings.Join(columns, "` | `"), strings.Repeat("---|", len(columns)))
	for _, name := range slices.Sorted(maps.Keys(set)) {
		text, err := json.Marshal(set[name])
		if err != nil {
			t.Fatal(err)
		}
		var fields map[string]json.RawMessage
		if err := json.Unmarshal(text, &fields); err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&b, "| `%s` |", name)
		for _, c := range columns {
			fmt.Fprintf(&b, " %s |", cell(t, fields[c]))
		}
		b.WriteString("\n")
	}
	return b.String()
}

// cell returns a value without JSON's quotes.
func cell(t *testing.T, raw json.RawMessage) string {
	t.Helper()
	if raw == nil {
		return "-"
	}
	var value any
	if err := json.Unmarshal(raw, &value); err != nil {
		t.Fatal(err)
	}
	if list, ok := value.([]any); ok {
		texts := make([]string, len(list))
		for i, v := range list {
			texts[i] = fmt.Sprint(v)
		}
		return strings.Join(texts, ", ")
	}
	return fmt.Sprint(value)
}

func readPage(t *testing.T, page string) string {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestDocsDangers compares the dangers and the required files of each profile with its section.
func TestDocsDangers(t *testing.T) {
	set, err := Load()
	if err != nil {
		t.Fatal(err)
	}
	flat := strings.Join(strings.Fields(readPage(t, pluginsPage)), " ")
	for name, p := range set {
		texts := slices.Clone(p.Dangers)
		for _, r := range p.Requires {
			texts = append(texts, "`"+r.Paths[0]+"`")
		}
		for _, text := range texts {
			if !strings.Contains(flat, text) {
				t.Errorf("%s lacks a text of the profile %s: %s", pluginsPage, name, text)
			}
		}
	}
}

func TestSources(t *testing.T) {
	set, err := Load()
	if err != nil {
		t.Fatal(err)
	}
	for name, p := range set {
		if len(p.Sources) == 0 || p.Type != name {
			t.Errorf("profile %q of type %q has no sources", name, p.Type)
		}
	}
}

func TestDocsProfile(t *testing.T) {
	_, after, found := strings.Cut(readPage(t, page), "```json\n{\n  \"type\"")
	example, _, closed := strings.Cut(after, "```")
	if !found || !closed {
		t.Fatal("docs/reference/profiles.md has no profile")
	}
	p, err := Parse([]byte("{\n  \"type\"" + example))
	if err != nil {
		t.Fatal(err)
	}
	if p.Type != "my-ipam" {
		t.Errorf("got a profile of %q, want the example's", p.Type)
	}
}

func TestDocsFields(t *testing.T) {
	_, section, _ := strings.Cut(readPage(t, page), "\n## Profile fields\n")
	section, _, _ = strings.Cut(section, "\n## ")
	for field := range reflect.TypeFor[Profile]().Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if !strings.Contains(section, "\n| `"+name+"` |") {
			t.Errorf("docs/reference/profiles.md has no row for the field %q", name)
		}
	}
}
