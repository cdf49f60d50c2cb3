package evidence

import (
	"slices"
	"testing"
)

func TestParse(t *testing.T) {
	for _, test := range []struct {
		name, code string
		want       []directive
		problems   int
	}{
		{name: "none", code: "// evidence:p s\nfunc TestA() {}"},
		{
			name: "test", code: "// TestA is a test.\n//\n//evidence:p s t\n//evidence:q u\nfunc TestA() {}",
			want: []directive{{"p", "s t", "dir", "`TestA`"}, {"q", "u", "dir", "`TestA`"}},
		},
		{
			name: "case", code: "func TestA() {\n\trun(\"one\")\n\t//evidence:p s\n\trun(`two \"2\"`)\n}",
			want: []directive{{"p", "s", "dir", "`TestA` \"two \"2\"\""}},
		},
		{name: "fuzz target", code: "//evidence:p s\nfunc FuzzA() {}", want: []directive{{"p", "s", "dir", "`FuzzA`"}}},
		{name: "helper", code: "//evidence:p s\nfunc helper() {}", problems: 1},
		{name: "behind the last case", code: "func TestA() {\n\trun(\"one\")\n\t//evidence:p s\n}", problems: 1},
		{name: "end of the file", code: "func TestA() {}\n\n//evidence:p s", problems: 1},
		{name: "no statement", code: "//evidence:p\nfunc TestA() {}", problems: 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, problems, err := parse("dir/a_test.go", []byte("package a\n\n"+test.code+"\n"))
			if err != nil || !slices.Equal(got, test.want) || len(problems) != test.problems {
				t.Errorf("%v, %q, %v; want %v and %d problems", got, problems, err, test.want, test.problems)
			}
		})
	}
}

func TestTable(t *testing.T) {
	const page = "<!-- evidence: every row -->\n| # | x |\n|---|---|\n| 2 | b |\n| 1 | a |\n"
	got := table(page, []directive{
		{statement: "other", dir: "pkg/a", test: "`TestZ`"},
		{statement: "1", dir: "test/image", test: "`TestC`"},
		{statement: "2", dir: "pkg/b", test: "`TestB`"},
		{statement: "2", dir: "pkg/a", test: "`TestA`"},
		{statement: "2", dir: "pkg/a", test: "`TestA`"},
	})
	const want = "| shown | by |\n|---|---|\n" +
		"| 2 | `pkg/a`: `TestA`; `pkg/b`: `TestB` |\n" +
		"| 1 | `test/image`: `TestC` (`make test-image`) |\n" +
		"| other | `pkg/a`: `TestZ` |\n"
	if got != want {
		t.Errorf("got\n%s; want\n%s", got, want)
	}
}

func TestUnshown(t *testing.T) {
	const page = "<!-- evidence: every row -->\n| # | x |\n|---|---|\n| 2 | b |\n| 1 | a |\n| 1 | c |\n"
	got := unshown(page, []directive{{statement: "2", test: "`TestA`"}, {statement: "3", dir: "pkg/a", test: "`TestB`"}, {statement: "other"}})
	want := []string{
		`no row 3, of which ` + "`TestB`" + ` of pkg/a is evidence`,
		`no test is evidence for the row "1"; add //evidence:PAGE 1 to the comment of one`,
		`two rows "1"`,
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q; want %q", got, want)
	}
}
