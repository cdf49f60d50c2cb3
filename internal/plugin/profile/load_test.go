package profile

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
)

// A file replaces the profile of its type, a later file an earlier one, and all are read for each load.
func TestLoader(t *testing.T) {
	dir := t.TempDir()
	write := func(name string, data []byte) string {
		t.Helper()
		file := filepath.Join(dir, name)
		check.Must(t, os.WriteFile(file, data, 0o600))
		return file
	}
	mine := write("b", valid(t))
	load := Loader([]string{
		write("a", valid(t, "type", `"host-local"`, "addOutlivesSeconds", `1`)), mine,
		write("c", valid(t, "type", `"host-local"`, "addOutlivesSeconds", `2`)),
	})
	for _, step := range []struct {
		value    string
		outlives int
		err      string
	}{
		{`7`, 7, ""},
		{`"7"`, 0, "addOutlivesSeconds"},
		{`8`, 8, ""},
	} {
		write("b", valid(t, "addOutlivesSeconds", step.value))
		set, err := load()
		if step.err != "" {
			wantError(t, err, "--plugin-profile", mine, step.err)
			continue
		}
		check.Must(t, err)
		if got, last := set.For("mine").AddOutlivesSeconds, set.For("host-local").AddOutlivesSeconds; got != step.outlives || last != 2 {
			t.Errorf("addOutlivesSeconds is %d, and of host-local %d; want %d, and the 2 of the last file", got, last, step.outlives)
		}
		if got := set.For("static").Type; got != "static" {
			t.Errorf("the embedded profile of static is %q", got)
		}
	}
	missing, large := filepath.Join(dir, "none"), write("large", make([]byte, maxFile+1))
	_, err := Loader([]string{missing})()
	wantError(t, err, "--plugin-profile", missing, "no such file")
	_, err = Loader([]string{large})()
	wantError(t, err, "--plugin-profile", large, "larger than 1048576 bytes")
}

func wantError(t *testing.T, err error, words ...string) {
	t.Helper()
	if err == nil {
		t.Fatal("got no error")
	}
	for _, want := range words {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error %q does not contain %q", err, want)
		}
	}
}

// A file may have several profiles, and an error has the line of its field.
func TestSeveralProfiles(t *testing.T) {
	one := string(valid(t))
	for name, c := range map[string]struct {
		file string
		want []string // of the error; none without one
	}{
		"array":                   {"[" + one + ",\n" + string(valid(t, "type", `"other"`)) + "]", nil},
		"empty array":             {"[ ]", nil},
		"unknown field":           {"[\n" + one + ",\n{\"type\": \"other\",\n \"nonsense\": 1}]", []string{`"nonsense"`, "docs/reference/profiles.md"}},
		"wrong value of one":      {"{\"type\": \"mine\",\n\n \"repeatedAdd\": \"never\"}", []string{"line 3", "repeatedAdd", `"never"`}},
		"missing field of one":    {"[\n" + one + ",\n\n{\"type\": \"other\"}]", []string{"line 4", "repeatedAdd is \"\""}},
		"missing number of one":   {"[\n" + one + ",\n" + string(valid(t, "unique", "")) + "]", []string{"line 3", "unique is missing"}},
		"wrong type in an array":  {"[\n{\"type\": \"mine\", \"unique\":\n 7}]", []string{"line 3", "unique", "true or false"}},
		"no end":                  {"[" + one, []string{"unexpected end"}},
		"more than one array":     {"[" + one + "] []", []string{"one array"}},
		"two objects without one": {one + one, []string{"more than one JSON document"}},
	} {
		t.Run(name, func(t *testing.T) {
			set := Set{}
			err := set.add([]byte(c.file))
			if c.want == nil {
				check.Must(t, err)
				return
			}
			wantError(t, err, c.want...)
		})
	}
	set := Set{}
	check.Must(t, set.add([]byte("["+one+","+string(valid(t, "type", `"other"`))+"]")))
	check.Equal(t, "profiles", len(set), 2)
	wantError(t, set.add([]byte("[\n"+one+",\n{\"type\": \"other\",\n \"nonsense\": 1}]")), "line "+strconv.Itoa(4+strings.Count(one, "\n")))
}
