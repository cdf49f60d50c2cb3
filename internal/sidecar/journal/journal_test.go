package journal

import (
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/journal/record"
	"golang.org/x/sys/unix"
)

// sample returns a record with a value in every kind of field.
func sample(containerID string) record.Record {
	at := time.Date(2025, 3, 1, 12, 0, 0, 123456789, time.UTC)
	return record.Record{
		ContainerID: containerID,
		Owner:       "kube-system/" + containerID,
		Pool:        "default",
		Node:        "worker-1",
		State:       record.Held,
		Network:     "net",
		Result: call.Result{
			Addresses: []call.Address{{
				Prefix:  netip.MustParsePrefix("10.1.0.7/24"),
				Gateway: netip.MustParseAddr("10.1.0.1"),
			}},
			Raw: []byte(`{"cniVersion":"1.0.0"}`),
		},
		Claims:      []record.Family{record.IPv4},
		Expiration:  &record.Expiration{UUID: "7c9e", Deadline: at.Add(time.Minute)},
		Invocations: []call.Invocation{{Network: "net", Config: []byte(`{"name":"net"}`)}},
		BootID:      "boot",
		MachineID:   "machine",
		Created:     at,
		Changed:     at,
	}
}

func open(t *testing.T, dir string) *Journal {
	t.Helper()
	j, err := Open(dir, Options{MachineID: "machine"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := j.Close(); err != nil {
			t.Error(err)
		}
	})
	return j
}

func write(t *testing.T, j *Journal, r record.Record) {
	t.Helper()
	if err := j.Write(r); err != nil {
		t.Fatal(err)
	}
}

func load(t *testing.T, j *Journal) Loaded {
	t.Helper()
	l, err := j.Load()
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func attachmentFile(dir, name string) string { return filepath.Join(dir, attachmentsName, name) }

func entryNames(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, e := range entries {
		all = append(all, e.Name())
	}
	return all
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// withoutPrivileges runs f so that file modes apply to it, even if it runs as root: on a separate
// thread without capabilities, which ends with the goroutine.
func withoutPrivileges(t *testing.T, f func()) {
	t.Helper()
	if os.Geteuid() != 0 {
		f()
		return
	}
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		var none [2]unix.CapUserData
		err := unix.Capset(&header, &none[0])
		if err == nil {
			f()
		}
		done <- err
	}()
	if err := <-done; err != nil {
		t.Skipf("capabilities cannot be dropped here: %v", err)
	}
}

func TestWriteLoad(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	j := open(t, dir)
	write(t, j, sample("b"))
	write(t, j, sample("a"))
	changed := sample("b")
	changed.State, changed.Claims, changed.Expiration = record.Releasing, nil, nil
	write(t, j, changed)

	got := load(t, open(t, dir))
	if want := (Loaded{Records: []record.Record{sample("a"), changed}}); !reflect.DeepEqual(got, want) {
		t.Errorf("loaded\n%+v\nwant\n%+v", got, want)
	}
	if left := entryNames(t, filepath.Join(dir, attachmentsName)); !slices.Equal(left, []string{"a.json", "b.json"}) {
		t.Errorf("attachments/ has %q", left)
	}
}

func TestWriteRefused(t *testing.T) {
	for name, change := range map[string]func(*record.Record){
		"no owner":                      func(r *record.Record) { r.Owner = "" },
		"container ID with a path":      func(r *record.Record) { r.ContainerID = "../escape" },
		"container ID of a hidden file": func(r *record.Record) { r.ContainerID = ".a" },
		"owner is not UTF-8":            func(r *record.Record) { r.Owner = "a\xffb" },
		"result is not JSON":            func(r *record.Record) { r.Result.Raw = []byte("{") },
		"time without a JSON form":      func(r *record.Record) { r.Changed = time.Date(12345, 1, 1, 0, 0, 0, 0, time.UTC) },
		"other machine":                 func(r *record.Record) { r.MachineID = "other" },
		"more bytes than Load reads":    func(r *record.Record) { r.Node = strings.Repeat("n", maxFile) },
		"unknown state":                 func(r *record.Record) { r.State = "lent" },
		"held without an address":       func(r *record.Record) { r.Result.Addresses, r.Claims = nil, nil },
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "state")
			j := open(t, dir)
			r := sample("a")
			change(&r)
			if err := j.Write(r); err == nil {
				t.Error("written")
			}
			if left := entryNames(t, filepath.Join(dir, attachmentsName)); len(left) != 0 {
				t.Errorf("attachments/ has %q", left)
			}
			if left := entryNames(t, filepath.Dir(dir)); !slices.Equal(left, []string{"state"}) {
				t.Errorf("beside the state directory there is %q", left)
			}
		})
	}
}

// The journal has the default pool under one name, for any name that the options give it.
func TestDefaultPool(t *testing.T) {
	for _, tt := range []struct{ option, inMemory, onDisk string }{
		{"", "default", "default"},
		{"default", "red", "red"},
		{"blue", "blue", "default"},
		{"blue", "red", "red"},
	} {
		dir := t.TempDir()
		j, err := Open(dir, Options{DefaultPool: tt.option})
		must(t, err)
		r := sample("a")
		r.Pool = tt.inMemory
		write(t, j, r)
		must(t, os.WriteFile(attachmentFile(dir, "b.json"), []byte(`{"version":9,"record":{"owner":"b","pool":"`+tt.onDisk+`"}}`), 0o600))
		if l := load(t, j); l.Records[0].Pool != tt.inMemory || l.FutureVersions[0].Pool != tt.inMemory {
			t.Errorf("DefaultPool %q: pool %s is read as %q and %q", tt.option, tt.inMemory, l.Records[0].Pool, l.FutureVersions[0].Pool)
		}
		must(t, j.Close())
		if l := load(t, open(t, dir)); l.Records[0].Pool != tt.onDisk {
			t.Errorf("DefaultPool %q: pool %s is written as %q; want %q", tt.option, tt.inMemory, l.Records[0].Pool, tt.onDisk)
		}
	}
}

func TestWriteReplacesLink(t *testing.T) {
	dir := t.TempDir()
	j := open(t, dir)
	target := filepath.Join(t.TempDir(), "target")
	must(t, os.WriteFile(target, []byte("precious"), 0o600))
	must(t, os.Symlink(target, attachmentFile(dir, "a.json")))
	write(t, j, sample("a"))
	if data, err := os.ReadFile(target); err != nil || string(data) != "precious" {
		t.Errorf("the link's target is %q, %v", data, err)
	}
	if got := load(t, j); len(got.Records) != 1 {
		t.Errorf("loaded %+v", got)
	}
}

func TestWriteFails(t *testing.T) {
	dir := t.TempDir()
	j := open(t, dir)
	write(t, j, sample("a"))
	// A directory that is not empty cannot be renamed over, not even by root.
	must(t, os.MkdirAll(attachmentFile(dir, "b.json/x"), 0o700))
	if err := j.Write(sample("b")); err == nil {
		t.Fatal("written over a directory")
	}
	if left := entryNames(t, filepath.Join(dir, attachmentsName)); !slices.Equal(left, []string{"a.json", "b.json"}) {
		t.Errorf("attachments/ has %q", left)
	}
	if got := load(t, j); len(got.Records) != 1 || len(got.Problems) != 1 {
		t.Errorf("loaded %+v", got)
	}
}

func TestReadOnlyDir(t *testing.T) {
	dir := t.TempDir()
	j := open(t, dir)
	write(t, j, sample("a"))
	must(t, j.Writable())
	must(t, os.Chmod(filepath.Join(dir, attachmentsName), 0o500))
	t.Cleanup(func() { must(t, os.Chmod(filepath.Join(dir, attachmentsName), 0o700)) })

	var writeErr, removeErr, probeErr error
	withoutPrivileges(t, func() {
		r := sample("a")
		r.Node = "changed"
		writeErr, removeErr, probeErr = j.Write(r), j.Remove("a"), j.Writable()
	})
	for what, err := range map[string]error{"Write": writeErr, "Remove": removeErr, "Writable": probeErr} {
		if !errors.Is(err, os.ErrPermission) {
			t.Errorf("%s: %v, want a permission error", what, err)
		}
	}
	if got := load(t, j).Records; !reflect.DeepEqual(got, []record.Record{sample("a")}) {
		t.Errorf("loaded %+v", got)
	}
}

func TestRemove(t *testing.T) {
	t.Run("twice", func(t *testing.T) {
		j := open(t, t.TempDir())
		write(t, j, sample("a"))
		for range 2 {
			must(t, j.Remove("a"))
		}
		if got := load(t, j); len(got.Records) != 0 {
			t.Errorf("loaded %+v", got.Records)
		}
	})
	t.Run("container ID with a path", func(t *testing.T) {
		dir := t.TempDir()
		j := open(t, dir)
		outside := filepath.Join(dir, "x.json")
		must(t, os.WriteFile(outside, nil, 0o600))
		if err := j.Remove("../x"); err == nil {
			t.Error("removed")
		}
		if _, err := os.Lstat(outside); err != nil {
			t.Error(err)
		}
	})
}

func TestWritable(t *testing.T) {
	dir := t.TempDir()
	j := open(t, dir)
	must(t, j.Writable())
	if left := entryNames(t, filepath.Join(dir, attachmentsName)); len(left) != 0 {
		t.Errorf("attachments/ has %q", left)
	}
}

func TestConcurrentWrites(t *testing.T) {
	dir := t.TempDir()
	j := open(t, dir)
	ids := []string{"a", "b", "c", "d"}
	var all sync.WaitGroup
	for _, id := range ids {
		all.Go(func() {
			for generation := range 5 {
				r := sample(id)
				r.Generation = generation
				if err := j.Write(r); err != nil {
					t.Error(err)
				}
				if l, err := j.Load(); err != nil || len(l.Problems) != 0 {
					t.Errorf("problems %+v, %v", l.Problems, err)
				}
			}
		})
	}
	all.Wait()
	records := load(t, j).Records
	if len(records) != len(ids) {
		t.Fatalf("loaded %+v", records)
	}
	for i, r := range records {
		if r.ContainerID != ids[i] || r.Generation != 4 {
			t.Errorf("record %d is generation %d of %s", i, r.Generation, r.ContainerID)
		}
	}
}
