package journal

import (
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/journal/record"
	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
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

func open(t testing.TB, dir string) *Journal {
	t.Helper()
	j, err := Open(dir, Options{MachineID: "machine", BootID: "boot"})
	check.Must(t, err)
	t.Cleanup(func() { check.NoError(t, j.Close()) })
	return j
}

func write(t testing.TB, j *Journal, r record.Record) {
	t.Helper()
	check.Must(t, j.Write(r))
}

func load(t *testing.T, j *Journal) Loaded {
	t.Helper()
	l, err := j.Load()
	check.Must(t, err)
	return l
}

func attachmentFile(dir, name string) string { return filepath.Join(dir, attachmentsName, name) }

// withoutPrivileges runs f so that file modes apply, even to root: on a separate thread without capabilities.
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

	check.Equal(t, "loaded", load(t, open(t, dir)), Loaded{Records: []record.Record{sample("a"), changed}})
	check.Equal(t, "attachments/", check.Names(t, attachmentFile(dir, "")), "a.json b.json")
}

func TestWriteRefused(t *testing.T) {
	for name, change := range map[string]func(*record.Record){
		"container ID with a path":   func(r *record.Record) { r.ContainerID = "../escape" },
		"owner is not UTF-8":         func(r *record.Record) { r.Owner = "a\xffb" },
		"result is not JSON":         func(r *record.Record) { r.Result.Raw = []byte("{") },
		"time without a JSON form":   func(r *record.Record) { r.Changed = time.Date(12345, 1, 1, 0, 0, 0, 0, time.UTC) },
		"other machine":              func(r *record.Record) { r.MachineID = "other" },
		"more bytes than Load reads": func(r *record.Record) { r.Node = strings.Repeat("n", maxFile) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "state")
			j := open(t, dir)
			r := sample("a")
			change(&r)
			check.Error(t, j.Write(r))
			check.Equal(t, "attachments/", check.Names(t, attachmentFile(dir, "")), "")
			check.Equal(t, "parent of the state directory", check.Names(t, filepath.Dir(dir)), "state")
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
		check.Must(t, err)
		r := sample("a")
		r.Pool = tt.inMemory
		write(t, j, r)
		check.Must(t, os.WriteFile(attachmentFile(dir, "b.json"), []byte(`{"version":9,"record":{"owner":"b","pool":"`+tt.onDisk+`"}}`), 0o600))
		if l := load(t, j); l.Records[0].Pool != tt.inMemory || l.FutureVersions[0].Pool != tt.inMemory {
			t.Errorf("DefaultPool %q: pool %s is read as %q and %q", tt.option, tt.inMemory, l.Records[0].Pool, l.FutureVersions[0].Pool)
		}
		check.Must(t, j.Close())
		if l := load(t, open(t, dir)); l.Records[0].Pool != tt.onDisk {
			t.Errorf("DefaultPool %q: pool %s is written as %q; want %q", tt.option, tt.inMemory, l.Records[0].Pool, tt.onDisk)
		}
	}
}

func TestWriteReplacesLink(t *testing.T) {
	dir := t.TempDir()
	j := open(t, dir)
	target := filepath.Join(t.TempDir(), "target")
	check.Must(t, os.WriteFile(target, []byte("precious"), 0o600))
	check.Must(t, os.Symlink(target, attachmentFile(dir, "a.json")))
	write(t, j, sample("a"))
	if data, err := os.ReadFile(target); err != nil || string(data) != "precious" {
		t.Errorf("the link's target is %q, %v", data, err)
	}
	check.Equal(t, "number of records", len(load(t, j).Records), 1)
}

func TestWriteFails(t *testing.T) {
	dir := t.TempDir()
	j := open(t, dir)
	write(t, j, sample("a"))
	// A directory that is not empty cannot be renamed over, not even by root.
	check.Must(t, os.MkdirAll(attachmentFile(dir, "b.json/x"), 0o700))
	check.Error(t, j.Write(sample("b")))
	check.Equal(t, "attachments/", check.Names(t, attachmentFile(dir, "")), "a.json b.json")
	got := load(t, j)
	check.True(t, len(got.Records) == 1 && len(got.Problems) == 1, "loaded %+v", got)
}

func TestRemove(t *testing.T) {
	dir := t.TempDir()
	j := open(t, dir)
	write(t, j, sample("a"))
	for range 2 { // a missing one is not an error
		check.Must(t, j.Remove("a"))
		check.Equal(t, "number of records", len(load(t, j).Records), 0)
	}
	outside := filepath.Join(dir, "x.json")
	check.Must(t, os.WriteFile(outside, nil, 0o600))
	check.Error(t, j.Remove("../x"))
	_, err := os.Lstat(outside)
	check.NoError(t, err)
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
				check.NoError(t, j.Write(r))
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
		check.True(t, r.ContainerID == ids[i] && r.Generation == 4, "record %d is generation %d of %s", i, r.Generation, r.ContainerID)
	}
}
