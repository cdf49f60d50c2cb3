package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
)

func TestMutants(t *testing.T) {
	const body = "package p\n\nfunc f(a, b int, err error) (int, error) {\n%\n}\n"
	for statement, want := range map[string][]string{
		"if a < b { return 1, nil }":   {"if !(a < b) { return 1, nil }", "if a <= b { return 1, nil }"},
		"for a >= 1 && ok() { a-- }":   {"for !(a >= 1 && ok()) { a-- }", "for a >= 1 || ok() { a-- }", "for a > 1 && ok() { a-- }", "for a >= 1 && ok() {  }"},
		"g(a)":                         {""},
		"defer g(a)":                   {""},
		"a = b + 1":                    {"", "a = b - 1"},
		`s := "x" + t`:                 nil,
		"a := b":                       nil,
		"return a, err":                {"return a, nil"},
		`return 0, fmt.Errorf("x %d")`: {"return 0, nil"},
		"return a, nil":                nil,
		"for { c <- a }":               {"for {  }"},
	} {
		t.Run(statement, func(t *testing.T) {
			source := strings.Replace(body, "%", statement, 1)
			mutants, err := mutantsIn("p.go", []byte(source))
			check.Must(t, err)
			var got []string
			for _, m := range mutants {
				if m.line != 4 {
					t.Errorf("%v is in line %d; want 4", m, m.line)
				}
				got = append(got, strings.Split(string(m.apply([]byte(source))), "\n")[3])
			}
			if !slices.Equal(got, want) {
				t.Errorf("got %q; want %q", got, want)
			}
		})
	}
}

// A module with one function, of which a test checks one of two results.
func TestRun(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	for name, text := range map[string]string{
		"go.mod":        "module x\n\ngo 1.26\n",
		"p/p.go":        "package p\n\nfunc F(a int) (b, c int) {\n\tb = a\n\tc = a\n\tunused := 1\n\t_ = unused\n\treturn b, c\n}\n",
		"p/p_test.go":   "package p\n\nimport \"testing\"\n\nfunc TestF(t *testing.T) {\n\tif b, _ := F(1); b != 1 {\n\t\tt.Error(b)\n\t}\n}\n",
		"bad/b_test.go": "package bad\n\nimport \"testing\"\n\nfunc TestF(t *testing.T) { t.Fail() }\n",
	} {
		check.Must(t, errors.Join(os.MkdirAll(filepath.Dir(name), 0o700), os.WriteFile(name, []byte(text), 0o600)))
	}
	s, err := testPackage(&runner{directory: "p", scratch: t.TempDir()}, options{jobs: 2}, 3)
	check.Must(t, err)
	var out bytes.Buffer
	report(&out, 7, []score{s})
	// The removal of "_ = unused" does not compile.
	want := "survived: p/p.go:5: remove c = a\n\n| package | mutants | killed | share | drawn from |\n|---|---|---|---|---|\n" +
		"| p | 2 | 1 | 50 % | 3 |\n| total | 2 | 1 | 50 % | 3 |\n\nseed 7\n"
	if out.String() != want {
		t.Errorf("printed\n%s\nwant\n%s", out.String(), want)
	}
	if _, err := testPackage(&runner{directory: "bad", scratch: t.TempDir()}, options{jobs: 1}, 1); err == nil {
		t.Error("a package whose tests fail was accepted")
	}
}
