package plugin

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
)

// loggedCall is one line of the fake's log.
type loggedCall struct {
	Verb  string
	PID   int
	Env   map[string]string
	Stdin json.RawMessage
}

// calls returns the fake's calls of a verb, oldest first.
func (f *fixture) calls(verb string) []loggedCall {
	f.t.Helper()
	data, err := os.ReadFile(filepath.Join(f.dir, "calls.log"))
	check.Must(f.t, err)
	var found []loggedCall
	for line := range strings.Lines(string(data)) {
		var c loggedCall
		check.Must(f.t, json.Unmarshal([]byte(line), &c))
		if c.Verb == verb {
			found = append(found, c)
		}
	}
	return found
}

// lastCall returns the fake's last call of a verb.
func (f *fixture) lastCall(verb string) loggedCall {
	f.t.Helper()
	calls := f.calls(verb)
	if len(calls) == 0 {
		f.t.Fatalf("the plugin had no %s", verb)
	}
	return calls[len(calls)-1]
}

// wantCalls fails the test if the fake did not have that many calls of a verb.
func (f *fixture) wantCalls(verb string, want int) {
	f.t.Helper()
	if got := len(f.calls(verb)); got != want {
		f.t.Errorf("the plugin had %d calls of %s, want %d", got, verb, want)
	}
}

// stdin returns one key of the standard input of the fake's last call of a verb.
func (f *fixture) stdin(verb, key string) string {
	f.t.Helper()
	var object map[string]json.RawMessage
	check.Must(f.t, json.Unmarshal(f.lastCall(verb).Stdin, &object))
	return string(object[key])
}

// wantHeld fails the test if the fake does not hold exactly the addresses.
func (f *fixture) wantHeld(want ...string) {
	f.t.Helper()
	entries, err := os.ReadDir(filepath.Join(f.dir, "store"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		f.t.Fatal(err)
	}
	var held []string
	for _, e := range entries {
		held = append(held, e.Name())
	}
	if !slices.Equal(held, want) {
		f.t.Errorf("the plugin holds %v, want %v", held, want)
	}
}
