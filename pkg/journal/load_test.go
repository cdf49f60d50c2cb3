package journal

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/delegated-ipam/delegated-ipam/pkg/journal/record"
)

// good returns the bytes of the file of a record.
func good(t *testing.T, containerID string) []byte {
	t.Helper()
	data, err := (&Journal{}).encode(sample(containerID))
	must(t, err)
	return data
}

func TestATornFileIsNeverARecordWhereverItIsTorn(t *testing.T) {
	data := good(t, "a")
	for n := range data {
		if _, err := decode(data[:n]); err == nil {
			t.Errorf("the first %d of %d bytes passed", n, len(data))
		}
	}
}

func TestAFlippedBitNeverPassesForTheRecord(t *testing.T) {
	data := good(t, "a")
	for i := range data {
		for bit := range 8 {
			flipped := bytes.Clone(data)
			flipped[i] ^= 1 << bit
			if _, err := decode(flipped); err == nil {
				t.Errorf("bit %d of byte %d (%q for %q) passed", bit, i, flipped[i], data[i])
			}
		}
	}
}

func TestAFlippedBitIsQuarantinedInEveryRegionOfTheFile(t *testing.T) {
	data := good(t, "a")
	at := func(text string) int {
		i := bytes.Index(data, []byte(text))
		if i < 0 {
			t.Fatalf("%q is not in the file", text)
		}
		return i
	}
	for region, offset := range map[string]int{
		"the first byte":          0,
		"the name of the version": at(`version`),
		"the checksum":            at(`"sha256":"`) + 12,
		"the record's first byte": at(`{"containerID`),
		"the container ID":        at(`"a"`) + 1,
		"the address":             at(`10.1.0.7`),
		"the state":               at(`held`),
		"the last brace":          len(data) - 2,
		"the line feed":           len(data) - 1,
	} {
		t.Run(region, func(t *testing.T) {
			dir := t.TempDir()
			j := open(t, dir)
			flipped := bytes.Clone(data)
			flipped[offset] ^= 4
			must(t, os.WriteFile(attachmentFile(dir, "a.json"), flipped, 0o600))
			expectQuarantined(t, dir, j, "a.json")
		})
	}
}

// wantQuarantined wants a file in quarantine/ that came there just now, and why.
func wantQuarantined(t *testing.T, j *Journal, name, reason string) {
	t.Helper()
	all, err := j.Quarantined()
	must(t, err)
	i := slices.IndexFunc(all, func(q Quarantined) bool { return q.Name == name })
	if i < 0 {
		t.Fatalf("quarantine/ has %+v; want %s", all, name)
	}
	if all[i].Reason != reason {
		t.Errorf("of %s it says %q; want %q", name, all[i].Reason, reason)
	}
	if age := time.Since(all[i].Since); age < -time.Minute || age > time.Minute {
		t.Errorf("%s is there since %s; it was put there just now", name, all[i].Since)
	}
}

func TestWhatAnEarlierLifePutAsideIsStillKnownWithItsReason(t *testing.T) {
	dir := t.TempDir()
	first := open(t, dir)
	write(t, first, sample("whole"))
	must(t, os.WriteFile(attachmentFile(dir, "torn.json"), []byte(`{"version":1,"sha`), 0o600))
	reason := load(t, first).Problems[0].Reason.Error()
	must(t, os.Rename(attachmentFile(dir, "whole.json"), filepath.Join(dir, quarantineName, "whole.json")))
	must(t, os.Mkdir(filepath.Join(dir, quarantineName, "folder"), 0o700))
	must(t, first.Close())

	j := open(t, dir)
	load(t, j)
	wantQuarantined(t, j, "torn.json", reason)
	wantQuarantined(t, j, "whole.json", "an earlier life of the process put it aside; its content can be read now")
	wantQuarantined(t, j, "folder", "it is no regular file (d---------)")
	must(t, os.Remove(filepath.Join(dir, quarantineName, "torn.json")))
	if all, err := j.Quarantined(); err != nil || len(all) != 2 {
		t.Errorf("after one was removed: %+v, %v; want the other two", all, err)
	}
}

// expectQuarantined loads and wants one entry moved away and reported, and the
// untouched neighbour "neighbour" read.
func expectQuarantined(t *testing.T, dir string, j *Journal, name string) Problem {
	t.Helper()
	write(t, j, sample("neighbour"))
	l := load(t, j)
	if len(l.Records) != 1 || l.Records[0].ContainerID != "neighbour" || len(l.FutureVersions) != 0 {
		t.Errorf("loaded records %+v, newer %+v", l.Records, l.FutureVersions)
	}
	if len(l.Problems) != 1 {
		t.Fatalf("problems %+v, want one", l.Problems)
	}
	p := l.Problems[0]
	if p.File != name || p.Reason == nil || p.MovedTo == "" || p.MoveErr != nil {
		t.Errorf("problem %+v", p)
	}
	if _, err := os.Lstat(attachmentFile(dir, name)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s is still there (%v)", name, err)
	}
	wantQuarantined(t, j, p.MovedTo, p.Reason.Error())
	if again := load(t, j); len(again.Problems) != 0 {
		t.Errorf("reported a second time: %+v", again.Problems)
	}
	return p
}

func TestWhatIsNoRecordIsQuarantined(t *testing.T) {
	another := sample("a")
	another.MachineID = "other"
	foreign, err := (&Journal{}).encode(another)
	must(t, err)
	plant := func(name string, data []byte) func(*testing.T, string) {
		return func(t *testing.T, dir string) {
			must(t, os.WriteFile(attachmentFile(dir, name), data, 0o600))
		}
	}
	for name, c := range map[string]struct {
		file   string
		id     string
		plant  func(t *testing.T, dir string)
		reason string
	}{
		"an empty file":                        {"a.json", "a", plant("a.json", nil), "empty"},
		"a file that is no JSON":               {"a.json", "a", plant("a.json", []byte("hello")), "no envelope"},
		"a version below the first":            {"a.json", "a", plant("a.json", []byte(`{"version":0}`)), "version is 0"},
		"a record under another's name":        {"b.json", "b", plant("b.json", good(t, "a")), "expected a.json"},
		"a copy made by hand":                  {"a (copy).json", "", plant("a (copy).json", good(t, "a")), "expected a.json"},
		"a file of another kind":               {"README", "", plant("README", []byte("hello")), "no envelope"},
		"a hidden file that is no left-over":   {".a.json.swp", "", plant(".a.json.swp", nil), "empty"},
		"a record of another machine":          {"a.json", "a", plant("a.json", foreign), "another machine"},
		"a file larger than any record":        {"a.json", "a", plant("a.json", make([]byte, maxFile+1)), "more than"},
		"a name as long as file systems allow": {strings.Repeat("n", 255), "", plant(strings.Repeat("n", 255), nil), "empty"},
		"a folder in place of a file": {"a.json", "a", func(t *testing.T, dir string) {
			must(t, os.MkdirAll(attachmentFile(dir, "a.json/deep"), 0o700))
		}, "no regular file"},
		"a link to a good record": {"a.json", "a", func(t *testing.T, dir string) {
			must(t, os.WriteFile(filepath.Join(dir, "elsewhere"), good(t, "a"), 0o600))
			must(t, os.Symlink("../elsewhere", attachmentFile(dir, "a.json")))
		}, "no regular file"},
		"a link to a good record in the same folder": {"b.json", "b", func(t *testing.T, dir string) {
			must(t, os.Symlink("neighbour.json", attachmentFile(dir, "b.json")))
		}, "no regular file"},
		"a folder named like a left-over": {".a.json12", "", func(t *testing.T, dir string) {
			must(t, os.MkdirAll(attachmentFile(dir, ".a.json12/deep"), 0o700))
		}, "no regular file"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			j := open(t, dir)
			c.plant(t, dir)
			p := expectQuarantined(t, dir, j, c.file)
			if p.ContainerID != c.id || !strings.Contains(p.Reason.Error(), c.reason) {
				t.Errorf("problem of %q: %v; want of %q: …%s…", p.ContainerID, p.Reason, c.id, c.reason)
			}
		})
	}
}

func TestQuarantineKeepsEveryEarlierFile(t *testing.T) {
	dir := t.TempDir()
	j := open(t, dir)
	for _, content := range []string{"first", "second", "third"} {
		must(t, os.WriteFile(attachmentFile(dir, "a.json"), []byte(content), 0o600))
		load(t, j)
	}
	for name, want := range map[string]string{"a.json": "first", "a.json.1": "second", "a.json.2": "third"} {
		if got, err := os.ReadFile(filepath.Join(dir, quarantineName, name)); err != nil || string(got) != want {
			t.Errorf("%s is %q, %v; want %q", name, got, err, want)
		}
	}
}

func TestAFileThatCannotBeMovedIsReportedAndNotFatal(t *testing.T) {
	dir := t.TempDir()
	j := open(t, dir)
	write(t, j, sample("a"))
	must(t, os.WriteFile(attachmentFile(dir, "bad.json"), nil, 0o600))
	must(t, os.Remove(filepath.Join(dir, quarantineName)))
	l := load(t, j)
	if len(l.Records) != 1 || len(l.Problems) != 1 || l.Problems[0].MoveErr == nil || l.Problems[0].MovedTo != "" {
		t.Errorf("loaded %+v", l)
	}
	if _, err := os.Lstat(attachmentFile(dir, "bad.json")); err != nil {
		t.Error(err)
	}
}

func TestARecordOfANewerVersionIsLeftAloneAndReported(t *testing.T) {
	for name, c := range map[string]struct {
		file, content string
		want          FutureVersion
	}{
		"its owner can be read": {
			"a.json", `{"version":2,"sum":"x","record":{"owner":"router","pool":"blue","more":1}}`,
			FutureVersion{File: "a.json", ContainerID: "a", Owner: "router", Pool: "blue", Version: 2},
		},
		"its record has another shape": {
			"a.json", `{"version":7,"record":[1,2]}`,
			FutureVersion{File: "a.json", ContainerID: "a", Version: 7},
		},
		"its name has another form": {
			"a.v9", `{"version":9}`,
			FutureVersion{File: "a.v9", Version: 9},
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			j := open(t, dir)
			must(t, os.WriteFile(attachmentFile(dir, c.file), []byte(c.content), 0o600))
			_, err := decode([]byte(c.content))
			if err == nil || !strings.Contains(err.Error(), "knows versions up to 1") {
				t.Errorf("the reason is %v", err)
			}
			if got, want := load(t, j), (Loaded{FutureVersions: []FutureVersion{c.want}}); !reflect.DeepEqual(got, want) {
				t.Errorf("loaded %+v, want %+v", got, want)
			}
			if c.want.ContainerID != "" {
				if err := j.Write(sample("a")); !errors.Is(err, ErrFutureVersion) {
					t.Errorf("Write: %v", err)
				}
				if err := j.Remove("a"); !errors.Is(err, ErrFutureVersion) {
					t.Errorf("Remove: %v", err)
				}
			}
			if got, err := os.ReadFile(attachmentFile(dir, c.file)); err != nil || string(got) != c.content {
				t.Errorf("the file is now %q, %v", got, err)
			}
		})
	}
}

func TestTemporaryFilesOfAnEarlierLifeAreRemoved(t *testing.T) {
	dir := t.TempDir()
	j := open(t, dir)
	// A process that is killed between its write and its rename leaves the first. Earlier
	// builds left the others.
	for _, name := range []string{j.temporary(), ".spare.json3", ".a.json12"} {
		must(t, os.WriteFile(attachmentFile(dir, name), good(t, "a"), 0o600))
	}
	if got := load(t, j); !reflect.DeepEqual(got, Loaded{}) {
		t.Errorf("loaded %+v", got)
	}
	if left := names(t, filepath.Join(dir, attachmentsName)); len(left) != 0 {
		t.Errorf("attachments/ still has %q", left)
	}
}

func TestLoadFailsWhereTheFolderCannotBeRead(t *testing.T) {
	j, err := Open(t.TempDir(), Options{})
	must(t, err)
	must(t, j.Close())
	if _, err := j.Load(); err == nil {
		t.Error("loaded from a closed folder")
	}
	if _, err := j.Quarantined(); err == nil {
		t.Error("listed a closed folder")
	}
}

func TestARecordThatCannotBeLookedAtIsNotGivenUp(t *testing.T) {
	tests := map[string]struct {
		// without runs f while the file cannot be looked at.
		without func(t *testing.T, file string, f func())
		want    error
	}{
		"its mode forbids it": {func(t *testing.T, file string, f func()) {
			must(t, os.Chmod(file, 0))
			withoutPrivileges(t, f)
			must(t, os.Chmod(file, 0o600))
		}, syscall.EACCES},
		"the folder's mode forbids it": {func(t *testing.T, file string, f func()) {
			folder := filepath.Dir(file)
			must(t, os.Chmod(folder, 0o400)) // its names can be read, and nothing else
			withoutPrivileges(t, f)
			must(t, os.Chmod(folder, 0o700))
		}, syscall.EACCES},
		"the process has no descriptor left": {func(t *testing.T, _ string, f func()) {
			var before syscall.Rlimit
			must(t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &before))
			must(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: 0, Max: before.Max}))
			f()
			must(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &before))
		}, syscall.EMFILE},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			j := open(t, dir)
			write(t, j, sample("a"))
			var err error
			tt.without(t, attachmentFile(dir, "a.json"), func() { _, err = j.Load() })
			if !errors.Is(err, tt.want) {
				t.Errorf("Load: %v; want %v", err, tt.want)
			}
			if got := load(t, j); !reflect.DeepEqual(got, Loaded{Records: []record.Record{sample("a")}}) {
				t.Errorf("without the cause it loaded %+v", got)
			}
		})
	}
}

// An I/O error comes from no file system that a test can make; test/faults has
// one of the real binary.
func TestAnErrorOfTheSystemSaysNothingOfTheFile(t *testing.T) {
	err := error(&unseenError{&os.PathError{Op: "read", Path: "a.json", Err: syscall.EIO}})
	for _, says := range []string{"read a.json: input/output error", "start again", "quarantine/"} {
		if !strings.Contains(err.Error(), says) {
			t.Errorf("%q does not say %q", err, says)
		}
	}
	if !errors.Is(err, syscall.EIO) {
		t.Errorf("%v is not %v", err, syscall.EIO)
	}
}

func TestASealedRecordIsItsEnvelopeInJSON(t *testing.T) {
	t.Parallel()
	raw := []byte(`"a"`)
	sum := sha256.Sum256(raw)
	text, err := json.Marshal(envelope{Version: version, SHA256: hex.EncodeToString(sum[:]), Record: raw})
	must(t, err)
	if got, want := string(seal(raw)), string(text)+"\n"; got != want {
		t.Errorf("the file is %q; want %q", got, want)
	}
}

func TestAFileThatAnEarlierBuildFilledUpWithSpacesIsRead(t *testing.T) {
	text := bytes.TrimSuffix(good(t, "a"), []byte("\n"))
	filled := slices.Concat(text, bytes.Repeat([]byte(" "), 4095-len(text)), []byte("\n"))
	if r, err := decode(filled); err != nil || !sameRecord(r, sample("a")) {
		t.Errorf("it gives %+v, %v", r, err)
	}
	if _, err := decode(filled[:4000]); err == nil {
		t.Error("it is read although its end is missing")
	}
}

func FuzzDecode(f *testing.F) {
	data, err := (&Journal{}).encode(sample("a"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Add([]byte(`{"version":2,"record":{"owner":1}}`))
	f.Add([]byte(`{"version":1,"sha256":"","record":null}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		if r, err := decode(data); err == nil {
			if err := r.Validate(); err != nil {
				t.Errorf("a record that is not valid was decoded: %v", err)
			}
		}
		// The checksum stands in the fuzzer's way; what lies behind it is tried
		// with every input as the record itself.
		r, err := decode(seal(data))
		if err != nil {
			return
		}
		if again, err := (&Journal{}).encode(r); err == nil {
			if back, err := decode(again); err != nil || !sameRecord(back, r) {
				t.Errorf("%+v became %+v, %v", r, back, err)
			}
		}
	})
}

func sameRecord(a, b record.Record) bool {
	x, errX := (&Journal{}).encode(a)
	y, errY := (&Journal{}).encode(b)
	return errX == nil && errY == nil && bytes.Equal(x, y)
}
