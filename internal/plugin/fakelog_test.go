package plugin

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

// loggedCall is one line of the fake's log.
type loggedCall struct {
	Verb  string            `json:"verb"`
	PID   int               `json:"pid"`
	Env   map[string]string `json:"env"`
	Stdin json.RawMessage   `json:"stdin"`
}

// calls returns the fake's calls of a verb, oldest first.
func (f *fixture) calls(verb string) []loggedCall {
	f.t.Helper()
	data, err := os.ReadFile(filepath.Join(f.dir, "calls.log"))
	if err != nil {
		f.t.Fatal(err)
	}
	var found []loggedCall
	in := bufio.NewScanner(bytes.NewReader(data))
	in.Buffer(nil, 1<<20)
	for in.Scan() {
		var c loggedCall
		if err := json.Unmarshal(in.Bytes(), &c); err != nil {
			f.t.Fatal(err)
		}
		if c.Verb == verb {
			found = append(found, c)
		}
	}
	return found
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
	calls := f.calls(verb)
	if len(calls) == 0 {
		f.t.Fatalf("the plugin had no %s", verb)
	}
	var object map[string]json.RawMessage
	if err := json.Unmarshal(calls[len(calls)-1].Stdin, &object); err != nil {
		f.t.Fatal(err)
	}
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
