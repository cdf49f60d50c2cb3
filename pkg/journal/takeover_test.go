package journal

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/pkg/journal/record"
)

func TestAStateFolderThatComesBackHasEveryRecord(t *testing.T) {
	tests := map[string]struct {
		goes, comes func(t *testing.T, dir string)
	}{
		"the same one": {
			func(t *testing.T, dir string) { must(t, os.Rename(dir, dir+".away")) },
			func(t *testing.T, dir string) { must(t, os.Rename(dir+".away", dir)) },
		},
		"an empty one": {
			func(t *testing.T, dir string) { must(t, os.RemoveAll(dir)) },
			func(t *testing.T, dir string) { must(t, os.Mkdir(dir, 0o700)) },
		},
		"one with stale records": {
			func(t *testing.T, dir string) { must(t, os.RemoveAll(dir)) },
			func(t *testing.T, dir string) {
				stale := sample("a")
				stale.Node = "of long ago"
				j := open(t, dir)
				write(t, j, stale)
				write(t, j, sample("released"))
			},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "state")
			j := open(t, dir)
			write(t, j, sample("a"))
			write(t, j, sample("b"))
			write(t, j, sample("released"))
			must(t, j.Remove("released"))

			tt.goes(t, dir)
			for what, err := range map[string]error{"Write": j.Write(sample("c")), "Remove": j.Remove("b"), "Writable": j.Writable()} {
				if !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), dir) {
					t.Errorf("%s without the folder: %v; want an error that names it", what, err)
				}
			}
			tt.comes(t, dir)
			must(t, j.Remove("b"))
			write(t, j, sample("c"))
			must(t, j.Writable())
			if got, want := load(t, open(t, dir)).Records, []record.Record{sample("a"), sample("c")}; !reflect.DeepEqual(got, want) {
				t.Errorf("the next life finds\n%+v\nwant\n%+v", got, want)
			}
		})
	}
}

func TestWhatIsTakenOutOfTheStateFolderIsMadeAgain(t *testing.T) {
	for _, name := range []string{attachmentsName, quarantineName} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			j := open(t, dir)
			write(t, j, sample("a"))
			must(t, os.RemoveAll(filepath.Join(dir, name)))
			must(t, j.Writable())
			if got := load(t, j).Records; !reflect.DeepEqual(got, []record.Record{sample("a")}) {
				t.Errorf("loaded %+v", got)
			}
		})
	}
}

func TestRecordsThatAnotherFolderBringsAlongAreKeptForAPerson(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	j := open(t, dir)
	must(t, os.RemoveAll(dir))
	write(t, open(t, dir), sample("stranger"))
	must(t, j.Writable())
	wantQuarantined(t, j, "stranger.json", "it was in a folder that took the place of the state folder")
}

func TestAFolderThatCannotBeTakenOverIsNotWritten(t *testing.T) {
	tests := map[string]struct {
		comes func(t *testing.T, dir string)
		says  string
	}{
		"another process has it": {func(t *testing.T, dir string) { startHolder(t, dir).expect(t, "holds") }, "held by PID"},
		"it is a file":           {func(t *testing.T, dir string) { must(t, os.WriteFile(dir, nil, 0o600)) }, "no folder"},
		"it is a symbolic link": {func(t *testing.T, dir string) {
			must(t, os.Mkdir(dir+".real", 0o700))
			must(t, os.Symlink(dir+".real", dir))
		}, "symbolic link"},
		"its subfolder is a file": {func(t *testing.T, dir string) {
			must(t, os.Mkdir(dir, 0o700))
			must(t, os.WriteFile(filepath.Join(dir, attachmentsName), nil, 0o600))
		}, "no folder"},
		"a folder is in the place of a record": {func(t *testing.T, dir string) {
			must(t, os.MkdirAll(attachmentFile(dir, "a.json/full"), 0o700))
		}, "a.json"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "state")
			j := open(t, dir)
			write(t, j, sample("a"))
			must(t, os.RemoveAll(dir))
			tt.comes(t, dir)
			if err := j.Write(sample("b")); err == nil || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("got %v; want an error with %q", err, tt.says)
			}
			if _, err := os.Lstat(attachmentFile(dir, "b.json")); err == nil {
				t.Error("the record is there all the same")
			}

			must(t, os.RemoveAll(dir))
			must(t, os.Mkdir(dir, 0o700))
			write(t, j, sample("b"))
			if got := load(t, j).Records; !reflect.DeepEqual(got, []record.Record{sample("a"), sample("b")}) {
				t.Errorf("loaded %+v", got)
			}
		})
	}
}

func TestAFolderThatWasTakenOverIsLockedForOthers(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	for _, goes := range []string{dir, filepath.Join(dir, lockName)} {
		j := open(t, dir)
		must(t, os.RemoveAll(goes))
		must(t, os.RemoveAll(filepath.Join(dir, attachmentsName)))
		must(t, os.MkdirAll(dir, 0o700))
		must(t, j.Writable())
		state, err := openState(dir)
		must(t, err)
		_, err = tryLock(state)
		if _, held := errors.AsType[*heldError](err); !held {
			t.Errorf("without %s: another lock gives %v; want it to be held", goes, err)
		}
		must(t, errors.Join(state.Close(), j.lock.Close()))
		j.lock = nil
	}
}
