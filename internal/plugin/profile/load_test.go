package profile

import (
	"os"
	"path/filepath"
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
