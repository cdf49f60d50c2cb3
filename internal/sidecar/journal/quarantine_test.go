package journal

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
)

// wantQuarantined fails unless a file was moved to quarantine/ just now, for a reason.
func wantQuarantined(t *testing.T, j *Journal, name, reason string) {
	t.Helper()
	all, err := j.Quarantined()
	check.Must(t, err)
	i := slices.IndexFunc(all, func(q Quarantined) bool { return q.Name == name })
	if i < 0 {
		t.Fatalf("quarantine/ has %+v; want %s", all, name)
	}
	check.Equal(t, "reason of "+name, all[i].Reason, reason)
	age := time.Since(all[i].Since).Abs()
	check.True(t, age < time.Minute, "%s is there since %s; want since just now", name, all[i].Since)
}

// loadQuarantined wants Load to move and report one entry, and to return another record ("neighbour").
func loadQuarantined(t *testing.T, dir string, j *Journal, name string) Problem {
	t.Helper()
	write(t, j, sample("neighbour"))
	l := load(t, j)
	if len(l.Records) != 1 || l.Records[0].ContainerID != "neighbour" || len(l.FutureVersions) != 0 {
		t.Errorf("loaded records %+v, future versions %+v", l.Records, l.FutureVersions)
	}
	if len(l.Problems) != 1 {
		t.Fatalf("problems %+v, want one", l.Problems)
	}
	p := l.Problems[0]
	if p.File != name || p.Reason == nil || p.MovedTo == "" || p.MoveErr != nil {
		t.Errorf("problem %+v", p)
	}
	check.Absent(t, attachmentFile(dir, name))
	wantQuarantined(t, j, p.MovedTo, p.Reason.Error())
	check.Equal(t, "number of problems at the next load", len(load(t, j).Problems), 0)
	return p
}

func TestQuarantineReasons(t *testing.T) {
	dir := t.TempDir()
	first := open(t, dir)
	write(t, first, sample("whole"))
	check.Must(t, os.WriteFile(attachmentFile(dir, "torn.json"), []byte(`{"version":1,"sha`), 0o600))
	reason := load(t, first).Problems[0].Reason.Error()
	check.Must(t, os.Rename(attachmentFile(dir, "whole.json"), filepath.Join(dir, quarantineName, "whole.json")))
	check.Must(t, os.Mkdir(filepath.Join(dir, quarantineName, "directory"), 0o700))
	check.Must(t, first.Close())

	j := open(t, dir)
	load(t, j)
	wantQuarantined(t, j, "torn.json", reason)
	wantQuarantined(t, j, "whole.json", "quarantined by a previous run; readable now")
	wantQuarantined(t, j, "directory", "not a regular file (d---------)")
	check.Must(t, os.Remove(filepath.Join(dir, quarantineName, "torn.json")))
	if all, err := j.Quarantined(); err != nil || len(all) != 2 {
		t.Errorf("after one was removed: %+v, %v; want the other two", all, err)
	}
}

func TestQuarantineNames(t *testing.T) {
	dir := t.TempDir()
	j := open(t, dir)
	for _, content := range []string{"first", "second", "third"} {
		check.Must(t, os.WriteFile(attachmentFile(dir, "a.json"), []byte(content), 0o600))
		load(t, j)
	}
	for name, want := range map[string]string{"a.json": "first", "a.json.1": "second", "a.json.2": "third"} {
		if got, err := os.ReadFile(filepath.Join(dir, quarantineName, name)); err != nil || string(got) != want {
			t.Errorf("%s is %q, %v; want %q", name, got, err, want)
		}
	}
}

func TestQuarantineMissing(t *testing.T) {
	dir := t.TempDir()
	j := open(t, dir)
	write(t, j, sample("a"))
	check.Must(t, os.WriteFile(attachmentFile(dir, "bad.json"), nil, 0o600))
	check.Must(t, os.Remove(filepath.Join(dir, quarantineName)))
	l := load(t, j)
	if len(l.Records) != 1 || len(l.Problems) != 1 || l.Problems[0].MoveErr == nil || l.Problems[0].MovedTo != "" {
		t.Errorf("loaded %+v", l)
	}
	_, err := os.Lstat(attachmentFile(dir, "bad.json"))
	check.NoError(t, err)
}

func TestQuarantineReplaced(t *testing.T) {
	dir := t.TempDir()
	j := open(t, dir)
	quarantine := filepath.Join(dir, quarantineName)
	check.Must(t, os.WriteFile(filepath.Join(quarantine, "ours"), nil, 0o600))
	check.Must(t, os.Rename(quarantine, quarantine+".away"))
	check.Must(t, os.Mkdir(quarantine, 0o700))
	check.Must(t, os.WriteFile(filepath.Join(quarantine, "foreign"), nil, 0o600))
	if got, err := j.Quarantined(); err != nil || len(got) != 1 || got[0].Name != "ours" {
		t.Errorf("got %+v, %v; want the file of the opened directory", got, err)
	}
	check.Must(t, os.RemoveAll(quarantine+".away"))
	if got, err := j.Quarantined(); err != nil || len(got) != 0 {
		t.Errorf("after the directory was removed: %+v, %v; want nothing", got, err)
	}
}
