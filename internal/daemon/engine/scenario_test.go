package engine

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestScenarios runs the scenarios of testdata/*.txt. Each begins with "== name [setups]" and has a separate fixture. A
// line has commands, separated by semicolons:
//
//	allocate router -> 10.0.0.1 fd00::1 => write adding, DEL, ADD[], write held
//
// is a request, its answer, and the steps until nothing moves: journal writes and plugin calls, "-" for none, and "..." for
// any further ones. The answer is the addresses, or the kind of an error and texts in it; "error" is any error, "?"
// anything, and "@name" the same as before with that name. "retry-later" is an error with a time for that. Without an answer the request has to succeed.
//
// "router = held 10.0.0.1" compares an attachment (show), and "plugin:ID = 10.0.0.1" what the plugin has for a container ID;
// @router is the ID of an owner. The other words are in ask, checks, commands and setups. The lines of a table begin with
// "|": the scenario runs once for each row, with its values in place of $column.
//
//evidence:operate/security it returns another owner's address
//evidence:operate/security an owner that `--owners` does not match
//evidence:operate/security more requests than the daemon can serve
//evidence:operate/security more owners than the node can have
//evidence:design/reliability the plugin of one pool hangs
//evidence:design/reliability every address of the range is in cooldown
//evidence:design/reliability the clients of a slow ADD and of its DEL are killed
//evidence:design/reliability the runtime repeats an ADD for another namespace
func TestScenarios(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for part := range strings.SplitSeq("\n"+string(text), "\n== ") {
			if name, body, ok := strings.Cut(part, "\n"); ok && name != "" && name[0] != '#' {
				name, setups, _ := strings.Cut(strings.TrimSuffix(name, "]"), " [")
				for _, row := range rowsOf(body) {
					run(t, filepath.Base(file)+"/"+name+row.name, row.fill(setups), func(f *fixture) { f.do(row.fill(body)) })
				}
			}
		}
	}
}

// row is a row of the table of a scenario.
type row struct {
	name string
	fill func(string) string
}

// rowsOf returns the rows of the table; one without values if there is none.
func rowsOf(body string) []row {
	var rows []row
	var columns []string
	for line := range strings.SplitSeq(body, "\n") {
		line, isRow := strings.CutPrefix(line, "| ")
		cells := strings.Split(line+" ", " | ")
		switch {
		case !isRow:
		case columns == nil:
			columns = cells
		default:
			var values []string
			for i, column := range columns {
				values = append(values, "$"+strings.TrimSpace(column), strings.TrimSpace(cells[i]))
			}
			rows = append(rows, row{": " + strings.ReplaceAll(values[1], "/", " "), strings.NewReplacer(values...).Replace})
		}
	}
	if rows == nil {
		rows = []row{{fill: func(s string) string { return s }}}
	}
	return rows
}

// command matches a command with the semicolon behind it, and word a word, which may be quoted.
var (
	command = regexp.MustCompile(`(?:"(?:\\.|[^"\\])*"|[^";])+`)
	word    = regexp.MustCompile(`"(?:\\.|[^"\\])*"|\S+`)
)

// do runs the commands of lines, and ends the test after the first failure.
func (f *fixture) do(lines string) {
	f.t.Helper()
	synctest.Wait()
	for line := range strings.SplitSeq(lines, "\n") {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' || line[0] == '|' {
			continue
		}
		for _, c := range command.FindAllString(line, -1) {
			f.command(c)
			if f.t.Failed() {
				f.t.Fatalf("after %s", c)
			}
		}
	}
}

// command runs one command, waits until nothing moves, and compares the answer and the steps.
func (f *fixture) command(text string) {
	f.t.Helper()
	if rest, ok := strings.CutPrefix(strings.TrimSpace(text), "repeat "); ok {
		times, rest, _ := strings.Cut(rest, " ")
		for i := range numberOf(times) {
			for c := range strings.SplitSeq(strings.ReplaceAll(rest, "%", strconv.Itoa(i)), " / ") {
				f.command(c)
			}
		}
		return
	}
	text, steps, hasSteps := strings.Cut(text, " => ")
	text, answer, hasAnswer := strings.Cut(text, " -> ")
	words := wordsOf(text)
	want := strings.Join(words[1:], " ")
	f.steps()
	began := time.Now()
	switch do, check := commands[words[0]], checks[words[0]]; {
	case strings.HasPrefix(want, "="):
		f.wantText(words[0], f.show(words[0]), strings.TrimPrefix(want[1:], " "))
	case check != nil:
		f.wantText(words[0], check(f), want)
	case do != nil:
		do(f, words[1:])
	default:
		got, err := f.answered(words)
		f.wantAnswer(got, err, answer, hasAnswer)
	}
	if checks[words[0]] == nil {
		f.took = time.Since(began)
	}
	synctest.Wait()
	if hasSteps {
		got, want := f.steps(), strings.TrimSpace(steps)
		if first, ok := strings.CutSuffix(want, " ..."); ok {
			got, want = got[:min(len(got), len(first))], first
		}
		f.wantText("steps", got, strings.TrimSuffix(want, "-"))
	}
}

// wordsOf returns the words of a text; one with spaces is quoted.
func wordsOf(text string) []string {
	words := word.FindAllString(text, -1)
	for i, w := range words {
		if unquoted, err := strconv.Unquote(w); err == nil {
			words[i] = unquoted
		}
	}
	return words
}

func (f *fixture) wantText(what, got, want string) {
	f.t.Helper()
	if got != want {
		f.t.Errorf("%s:\n got %s\nwant %s", what, got, want)
	}
}

// wantAnswer compares the answer of a request.
func (f *fixture) wantAnswer(got string, err error, want string, compare bool) {
	f.t.Helper()
	words := append(wordsOf(want), "")
	kind := words[0]
	same, noted := f.answers[kind]
	switch {
	case kind == "?":
	case kind == "error":
		if err == nil {
			f.t.Error("got no error")
		}
	case slices.Contains(kinds, kind):
		f.wantError(err, kindOf(kind), words[1:]...)
	case err != nil:
		f.t.Errorf("got the error %v", err)
	case strings.HasPrefix(kind, "@") && !noted:
		f.answers[kind] = got
	case noted:
		f.wantText("answer", got, same)
	case compare:
		f.wantText("answer", got, strings.TrimSpace(want))
	}
}

// textOf joins values with spaces.
func textOf[T any](all []T) string {
	text := fmt.Sprint(all)
	return text[1 : len(text)-1]
}
