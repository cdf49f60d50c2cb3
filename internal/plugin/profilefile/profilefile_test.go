package profilefile

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

const valid = `{"type":"mine","repeatedAdd":"refused","verifyBy":"nothing","checkProves":"presence","lost":{},
"addOutlivesSeconds":7,"del":"released","store":"node","lookup":"none","podIdentity":"none","namespace":"any","unique":true}`

func TestReload(t *testing.T) {
	file := filepath.Join(t.TempDir(), "mine.json")
	load := Loader([]string{file})
	for _, step := range []struct {
		text     string
		outlives int
		err      string
	}{
		{valid, 7, ""},
		{strings.Replace(valid, "7", `"7"`, 1), 0, "addOutlivesSeconds"},
		{strings.Replace(valid, "7", "8", 1), 8, ""},
	} {
		if err := os.WriteFile(file, []byte(step.text), 0o600); err != nil {
			t.Fatal(err)
		}
		set, err := load()
		if step.err != "" {
			wantError(t, err, "--plugin-profile", file, step.err)
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if got := set.For("mine").AddOutlivesSeconds; got != step.outlives {
			t.Errorf("addOutlivesSeconds is %d; want %d", got, step.outlives)
		}
		if got := set.For("host-local").Type; got != "host-local" {
			t.Errorf("the embedded profile of host-local is %q", got)
		}
	}
}

//evidence:operate/security F9
func TestUnreadable(t *testing.T) {
	dir := t.TempDir()
	fifo, large := filepath.Join(dir, "fifo"), filepath.Join(dir, "large")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(large, make([]byte, maxSize+1), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct{ file, want string }{
		"missing":   {filepath.Join(dir, "none"), "no such file"},
		"directory": {dir, "not a regular file"},
		"FIFO":      {fifo, "not a regular file"},
		"too large": {large, "larger than 1048576 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Loader([]string{tt.file})()
			wantError(t, err, "--plugin-profile", tt.file, tt.want)
		})
	}
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
