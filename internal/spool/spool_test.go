package spool

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
)

func create(t *testing.T) *Dir {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("the spool is root's")
	}
	d, err := Create(t.TempDir())
	check.Must(t, err)
	t.Cleanup(func() { d.Close() })
	return d
}

func entryOf(id string) Entry {
	return Entry{Network: "pods", ContainerID: id, IfName: "eth0", Args: "K8S_POD_NAME=p", Written: time.Unix(1_700_000_000, 5).UTC(), NetNS: "/n", Device: 1, Inode: 2}
}

func TestPutAndRead(t *testing.T) {
	d := create(t)
	e := entryOf("a")
	check.Must(t, d.Put(e))
	check.Must(t, d.Put(e)) // replaced
	names, err := d.List()
	if err != nil || len(names) != 1 || names[0] != e.name() {
		t.Fatalf("the directory has %q, %v", names, err)
	}
	got, info, err := d.Read(names[0])
	check.Must(t, err)
	e.Version = version
	if got != e || info.Mode() != 0o600 {
		t.Errorf("read %+v with mode %v; want %+v", got, info.Mode(), e)
	}
	// One that replaces the file that was read stays.
	newer := e
	newer.Written = e.Written.Add(time.Hour)
	check.Must(t, d.Put(newer))
	check.Must(t, d.Remove(names[0], info))
	got, info, err = d.Read(names[0])
	if err != nil || got.Written != newer.Written {
		t.Errorf("the newer entry is %+v, %v", got, err)
	}
	check.Must(t, d.Remove(names[0], info))
	check.Must(t, d.Remove(names[0], info))
	if _, _, err := d.Read(names[0]); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("read a removed entry: %v", err)
	}
	if all, err := os.ReadDir(d.Path()); err != nil || len(all) != 1 {
		t.Errorf("left %v, %v", all, err)
	}
}

//evidence:operate/security an entry of the spool with another path, or configuration
func TestNames(t *testing.T) {
	seen := map[string]bool{}
	for _, k := range [][3]string{{"a", "b", "c"}, {"ab", "", "c"}, {"a", "bc", ""}, {"", "ab", "c"}, {"../../etc", "passwd", "x"}} {
		name := Name(k[0], k[1], k[2])
		if seen[name] || strings.ContainsAny(name, "/") || len(name) != 32+len(suffix) {
			t.Errorf("%q: %s", k, name)
		}
		seen[name] = true
	}
}

// Every change of a file is noticed: a bit, an end that is missing, and another name.
//
//evidence:operate/security a link, FIFO, directory, second name, foreign owner, or a writable, damaged, renamed or large file in the spool
func TestDamage(t *testing.T) {
	e := entryOf("a")
	content, err := e.encode()
	check.Must(t, err)
	if got, err := decode(e.name(), content); err != nil || got.ContainerID != "a" {
		t.Fatalf("got %+v, %v", got, err)
	}
	for i := range content {
		damaged := append([]byte{}, content...)
		damaged[i] ^= 1
		if _, err := decode(e.name(), damaged); err == nil {
			t.Fatalf("a change of byte %d was accepted", i)
		}
		if _, err := decode(e.name(), content[:i]); err == nil {
			t.Fatalf("%d bytes of %d were accepted", i, len(content))
		}
	}
	if _, err := decode(entryOf("b").name(), content); err == nil {
		t.Error("another name was accepted")
	}
}

func TestBounds(t *testing.T) {
	d := create(t)
	large := entryOf("large")
	large.Args = strings.Repeat("x", maxEntry)
	if err := d.Put(large); err == nil || !strings.Contains(err.Error(), "expected at most") {
		t.Errorf("a large entry: %v", err)
	}
	for i := range maxFiles - 1 { // with the directory of the quarantine
		check.Must(t, os.WriteFile(filepath.Join(d.Path(), fmt.Sprint(i)), nil, 0o600))
	}
	if err := d.Put(entryOf("a")); !errors.Is(err, ErrFull) {
		t.Errorf("above the number of files: %v", err)
	}
	check.Must(t, os.Remove(filepath.Join(d.Path(), "0")))
	check.Must(t, d.Put(entryOf("a")))
	check.Must(t, d.Put(entryOf("a"))) // replaces, so there is room
	check.Must(t, os.Remove(filepath.Join(d.Path(), "1")))
	check.Must(t, os.Truncate(filepath.Join(d.Path(), "2"), maxBytes))
	if err := d.Put(entryOf("b")); !errors.Is(err, ErrFull) {
		t.Errorf("above the number of bytes: %v", err)
	}
	if names, _ := d.names("."); len(names) != maxFiles-1 {
		t.Errorf("a refused entry left a file: %d", len(names))
	}
}

func TestParallelWriters(t *testing.T) {
	d := create(t)
	var writers sync.WaitGroup
	for i := range 50 {
		writers.Go(func() {
			other, err := Open(d.Path()) // as another process
			if err == nil {
				err = errors.Join(other.Put(entryOf(fmt.Sprint(i%5))), other.Close())
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	writers.Wait()
	if names, err := d.List(); err != nil || len(names) != 5 {
		t.Errorf("got %q, %v; want 5 entries", names, err)
	}
}

// A directory in which another user could plant an entry is refused.
//
//evidence:operate/security a spool of another user, with another mode than 0700, or behind a link
func TestOpenRefuses(t *testing.T) {
	d := create(t)
	link := filepath.Join(t.TempDir(), "link")
	check.Must(t, os.Symlink(d.Path(), link))
	parent := filepath.Join(t.TempDir(), "parent")
	check.Must(t, os.Symlink(filepath.Dir(d.Path()), parent))
	file := filepath.Join(t.TempDir(), "file")
	check.Must(t, os.WriteFile(file, nil, 0o700))
	open, foreign := t.TempDir(), t.TempDir()
	check.Must(t, os.Chmod(open, 0o770))
	check.Must(t, os.Chmod(foreign, 0o700))
	check.Must(t, os.Chown(foreign, 65534, 0))
	for path, text := range map[string]string{
		link: "symbolic links", filepath.Join(parent, Subdir): "symbolic links", file: "not a directory", open: "its mode is 0770",
		foreign: "owned by user 65534", filepath.Join(open, "none"): "no such file", "relative": "absolute", "": "absolute",
	} {
		if _, err := Open(path); err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%s: got %v; want %q", path, err, text)
		}
	}
}

// What a killed writer leaves is not an entry, and is removed later.
func TestKilledWriter(t *testing.T) {
	d := create(t)
	part := filepath.Join(d.Path(), ".x.del.1-2"+temporarySuffix)
	check.Must(t, os.WriteFile(part, []byte("half"), 0o600))
	check.Must(t, d.RemoveTemporary())
	if names, err := d.List(); err != nil || len(names) > 0 {
		t.Errorf("the directory has %q, %v", names, err)
	}
	if _, err := os.Stat(part); err != nil {
		t.Errorf("a new temporary file was removed: %v", err)
	}
	old := time.Now().Add(-2 * temporaryAge)
	check.Must(t, os.Chtimes(part, old, old))
	check.Must(t, d.RemoveTemporary())
	if _, err := os.Stat(part); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("an old temporary file stays: %v", err)
	}
}

func TestPendingAndRemove(t *testing.T) {
	d := create(t)
	state, err := os.OpenRoot(filepath.Dir(d.Path()))
	check.Must(t, err)
	defer state.Close()
	check.Must(t, d.Put(entryOf("a")))
	check.Must(t, os.WriteFile(filepath.Join(d.Path(), "0"), nil, 0o600))
	lines, err := Pending(state.Name())
	check.NoError(t, err)
	check.Contains(t, strings.Join(lines, "\n"), `"0": another name`, entryOf("a").name()+`: network "pods", container ID a, interface eth0, left 2023-`)
	check.Error(t, Remove(state), "2 DELs")
	check.Must(t, d.MoveAside("0"))
	check.Must(t, d.MoveAside(entryOf("a").name()))
	check.Must(t, os.WriteFile(filepath.Join(d.Path(), "a"+temporarySuffix), nil, 0o600))
	check.Must(t, Remove(state))
	check.Absent(t, d.Path())
	check.True(t, d.Put(entryOf("b")) != nil, "an entry was added to a removed spool")
	check.True(t, Remove(state) != nil, "a missing spool was removed")
	lines, err = Pending(state.Name())
	check.True(t, len(lines) == 0 && err == nil, "without a spool: %q, %v", lines, err)
	check.Must(t, os.Mkdir(d.Path(), 0o755))
	_, err = Pending(state.Name())
	check.Error(t, err, "0755")
}

func FuzzDecode(f *testing.F) {
	content, err := entryOf("a").encode()
	check.Must(f, err)
	f.Add(entryOf("a").name(), content)
	f.Add("", []byte("x"))
	f.Fuzz(func(t *testing.T, name string, content []byte) {
		if e, err := decode(name, content); err == nil && e.name() != name {
			t.Errorf("%q was accepted as %q", e.name(), name)
		}
	})
}
