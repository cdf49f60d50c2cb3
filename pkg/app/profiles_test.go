package app

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// ownProfile is a profile that can be used.
const ownProfile = `{"type":"mine","repeatedAdd":"refused","verifyBy":"nothing","checkProves":"presence","lost":{},
"addOutlivesSeconds":7,"del":"released","store":"node","lookup":"none","podIdentity":"none","namespace":"any","unique":true}`

func TestAProfileFileIsReadOverTheEmbeddedOnesEachTimeItIsAskedFor(t *testing.T) {
	file := filepath.Join(t.TempDir(), "mine.json")
	known := newProfiles([]string{file})
	for _, step := range []struct {
		text     string
		outlives int
		says     string
	}{
		{ownProfile, 7, ""},
		{strings.Replace(ownProfile, "7", `"7"`, 1), 0, "addOutlivesSeconds"},
		{strings.Replace(ownProfile, "7", "8", 1), 8, ""},
	} {
		if err := os.WriteFile(file, []byte(step.text), 0o600); err != nil {
			t.Fatal(err)
		}
		set, err := known.load()
		if step.says != "" {
			wantSays(t, err, "--plugin-profile", file, step.says)
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if got := set.For("mine").AddOutlivesSeconds; got != step.outlives {
			t.Errorf("addOutlivesSeconds is %d; want the file's %d", got, step.outlives)
		}
		if got := set.For("host-local").Type; got != "host-local" {
			t.Errorf("the embedded profiles are gone: %q", got)
		}
	}
}

func TestAProfileFileThatCannotBeReadIsNamedAndHoldsNobodyUp(t *testing.T) {
	dir := t.TempDir()
	fifo, large := filepath.Join(dir, "fifo"), filepath.Join(dir, "large")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(large, make([]byte, maxProfile+1), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ file, says string }{
		"it is not there": {filepath.Join(dir, "none"), "no such file"},
		"it is a folder":  {dir, "no regular file"},
		"it is a FIFO":    {fifo, "no regular file"},
		"it is too large": {large, "more than 1048576 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := newProfiles([]string{c.file}).load()
			wantSays(t, err, "--plugin-profile", c.file, c.says)
		})
	}
}

func wantSays(t *testing.T, err error, words ...string) {
	t.Helper()
	if err == nil {
		t.Fatal("it was taken")
	}
	for _, want := range words {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error %q does not say %q", err, want)
		}
	}
}
