package journal

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/bbolt"
	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/delegated-ipam/delegated-ipam/internal/boltfile"
	"github.com/delegated-ipam/delegated-ipam/internal/daemon/attachment"
	"github.com/delegated-ipam/delegated-ipam/internal/daemon/statedir"
	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
)

func TestWriteLoad(t *testing.T) {
	f := newFixture(t)
	f.write(sample("b"), sample("a"))
	changed := sample("b")
	changed.State, changed.Claims, changed.Expiration = attachment.Releasing, nil, nil
	f.write(changed)
	f.wantRecords(sample("a"), changed)
	check.Equal(t, "files", check.Names(t, f.dir), fileName+" lock")
	info, err := os.Lstat(f.path())
	check.Must(t, err)
	check.Equal(t, "mode", info.Mode(), fs.FileMode(0o600))
}

func TestRemove(t *testing.T) {
	f := newFixture(t)
	f.write(sample("a"), sample("b"))
	for range 2 { // a missing one is not an error
		check.Must(t, f.Remove("default", "a"))
		check.Must(t, f.Remove("other", "b"))
		f.wantRecords(sample("b"))
	}
}

func TestWriteRefused(t *testing.T) {
	for name, change := range map[string]func(*attachment.Record){
		"unknown state":              func(r *attachment.Record) { r.State = "unknown" },
		"container ID with a path":   func(r *attachment.Record) { r.ContainerID = "../escape" },
		"owner is not UTF-8":         func(r *attachment.Record) { r.Owner = "a\xffb" },
		"owner is too long":          func(r *attachment.Record) { r.Owner = strings.Repeat("x", 40_000) },
		"pool with a zero byte":      func(r *attachment.Record) { r.Pool = "a\x00b" },
		"result is not JSON":         func(r *attachment.Record) { r.Result.Raw = []byte("{") },
		"time without a JSON form":   func(r *attachment.Record) { r.Changed = time.Date(12345, 1, 1, 0, 0, 0, 0, time.UTC) },
		"more bytes than Load reads": func(r *attachment.Record) { r.Node = strings.Repeat("n", maxRecord) },
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			f.write(sample("b"))
			r := sample("a")
			change(&r)
			check.Error(t, f.Write(r))
			f.wantRecords(sample("b"))
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
		f := newFixture(t)
		f.options.DefaultPool = tt.option
		f.restart()
		r := sample("a")
		r.Pool = tt.inMemory
		f.write(r)
		check.Equal(t, "pool with --default-pool "+tt.option, f.restart().Records[0].Pool, tt.inMemory)
		_, all, err := Read(f.dir)
		check.Must(t, err)
		check.Equal(t, "pool on disk", all.Records[0].Pool, tt.onDisk)
		check.Must(t, f.Remove(tt.inMemory, "a"))
		f.wantRecords()
	}
}

// A default pool with the name of another pool would not find the records of that under its name on disk.
func TestDefaultPoolNamedAsOther(t *testing.T) {
	f := newFixture(t)
	r := sample("a")
	r.Pool = "blue"
	f.write(r)
	f.stop()
	named := f.options
	named.DefaultPool = "blue"
	f.start(named)
	_, err := f.Load()
	check.Error(t, err, fileName, `pool "blue"`, "--ipam-default-ip-pool")
	f.options.DefaultPool = storedDefaultPool
	f.wantRecords(r)
}

// Concurrent changes share transactions, and none is lost.
func TestConcurrentWrites(t *testing.T) {
	f := newFixture(t)
	f.load()
	var all sync.WaitGroup
	const writers, writes = 8, 25
	for i := range writers {
		all.Go(func() {
			for generation := range writes {
				r := sample(fmt.Sprint("owner-", i))
				r.Generation = generation
				check.NoError(t, f.Write(r))
				check.NoError(t, f.Remove("default", fmt.Sprint("missing-", i)))
			}
		})
	}
	all.Wait()
	id := 0
	check.Must(t, f.Journal.file.Update(func(tx *bbolt.Tx) error { id = tx.ID(); return nil }))
	check.True(t, id < 2*writers*writes, "%d transactions for %d changes", id, 2*writers*writes)
	records := f.restart().Records
	check.Equal(t, "number of records", len(records), writers)
	for _, r := range records {
		check.Equal(t, "generation of "+r.Owner, r.Generation, writes-1)
	}
}

// A journal behaves like a map after any sequence of writes, removals and restarts.
func TestJournalModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		f := newFixture(t)
		model := map[string]attachment.Record{}
		owner := rapid.SampledFrom([]string{"a", "b", "c", "d.e_f-g"})
		rt.Repeat(map[string]func(*rapid.T){
			"write": func(rt *rapid.T) {
				r := sample(owner.Draw(rt, "owner"))
				r.Generation = rapid.IntRange(0, 9).Draw(rt, "generation")
				r.Node = rapid.StringN(0, 20_000, -1).Draw(rt, "node") + strconv.Itoa(r.Generation)
				check.Must(t, f.Write(r))
				model[r.Owner] = r
			},
			"remove": func(rt *rapid.T) {
				removed := owner.Draw(rt, "owner")
				check.Must(t, f.Remove("default", removed))
				delete(model, removed)
			},
			"restart": func(rt *rapid.T) {
				got := map[string]attachment.Record{}
				for _, r := range f.restart().Records {
					got[r.Owner] = r
				}
				if !reflect.DeepEqual(got, model) {
					rt.Fatalf("loaded %+v, want %+v", got, model)
				}
			},
		})
	})
}

// The directory, or the file in it, is not the opened one: nothing is changed until it returns.
func TestReplaced(t *testing.T) {
	nothing := func(string) error { return nil }
	empty := func(path string) error { return os.WriteFile(path, nil, 0o600) }
	dir := func(path string) error { return os.Mkdir(path, 0o700) }
	link := func(path string) error { return os.Symlink(path+".away", path) }
	for name, tt := range map[string]struct {
		path    string // is moved away
		replace func(path string) error
		want    string // in the error
	}{
		"no state directory":    {".", nothing, "no such file or directory"},
		"other state directory": {".", dir, "another directory or file system"},
		"no file":               {fileName, nothing, fileName + ": no such file or directory"},
		"other file":            {fileName, empty, fileName + " leads to another file"},
		"link to the file":      {fileName, link, fileName + " leads to a symbolic link"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			f.load()
			f.write(sample("a"))
			path := filepath.Join(f.dir, tt.path)
			check.Must(t, os.Rename(path, path+".away"))
			check.Must(t, tt.replace(path))
			before := check.Names(t, filepath.Dir(path))
			_, quarantinedErr := f.Quarantined()
			_, loadErr := f.Load()
			for what, err := range map[string]error{
				"Available": f.Available(), "Write": f.Write(sample("b")), "Remove": f.Remove("default", "a"), "Writable": f.Writable(),
				"Quarantined": quarantinedErr, "Load": loadErr,
			} {
				check.True(t, errors.Is(err, statedir.ErrReplaced), "%s: %v; want ErrReplaced", what, err)
				check.Error(t, err, tt.want, f.dir)
			}
			check.Equal(t, "files", check.Names(t, filepath.Dir(path)), before)

			check.Must(t, os.RemoveAll(path))
			check.Must(t, os.Rename(path+".away", path))
			check.Must(t, f.Writable())
			f.write(sample("b"))
			f.wantRecords(sample("a"), sample("b"))
		})
	}
}

// After a failed commit the next one is to a new file, with the records of the old one.
func TestFailedCommit(t *testing.T) {
	f := newFixture(t)
	f.load()
	f.write(sample("a"), sample("b"))
	before, err := os.Stat(f.path())
	check.Must(t, err)
	f.breakFile()
	check.Error(t, f.Write(sample("c")), f.path(), "bad file descriptor")
	check.Must(t, f.Available())
	check.Must(t, f.change(boltfile.Entry{Key: key("default", "a")}))
	after, err := os.Stat(f.path())
	check.Must(t, err)
	check.True(t, !os.SameFile(before, after), "the file was not written anew")
	f.write(sample("d"))
	f.wantRecords(sample("b"), sample("d"))
}

// A removal is on disk with the next change, also one that has failed before.
func TestRemovals(t *testing.T) {
	f := newFixture(t)
	f.load()
	f.write(sample("a"), sample("b"), sample("c"))
	check.Must(t, f.Remove("default", "a"))
	f.write(sample("d"))
	_, all, err := Read(f.dir)
	check.Must(t, err)
	check.Equal(t, "records", len(all.Records), 3)
	f.breakFile()
	check.Must(t, f.Remove("default", "b"))
	f.commitRemovals()
	check.Must(t, f.Writable())
	check.Must(t, f.Remove("default", "c"))
	f.write(sample("c")) // a record of a later attachment
	f.wantRecords(sample("c"), sample("d"))
}

// While no commit succeeds, one at a time is repeated, however many have failed: each reads the file.
func TestFailedRemovals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.load()
		f.write(sample("a"))
		check.Must(t, os.Truncate(f.path(), 0))
		for range 20 {
			check.Must(t, f.Remove("default", "a"))
			check.Error(t, f.Writable(), "restart the daemon")
		}
		time.Sleep(retryDelay / 2)
		events, err := unix.InotifyInit1(unix.IN_NONBLOCK)
		check.Must(t, err)
		defer unix.Close(events)
		_, err = unix.InotifyAddWatch(events, f.path(), unix.IN_OPEN|unix.IN_CLOSE)
		check.Must(t, err)
		time.Sleep(10 * retryDelay)
		n, err := unix.Read(events, make([]byte, 1<<16))
		check.Must(t, err)
		check.Equal(t, "repetitions", n/unix.SizeofInotifyEvent/2, 10)
	})
}

// breakFile makes every further write to the file fail: its descriptor becomes one that is only read.
func (f *fixture) breakFile() {
	f.t.Helper()
	info, err := f.Journal.file.Stat()
	check.Must(f.t, err)
	descriptors, err := filepath.Glob("/proc/self/fd/*")
	check.Must(f.t, err)
	for _, name := range descriptors {
		open, err := os.Stat(name)
		if err != nil || !os.SameFile(info, open) {
			continue
		}
		read, err := os.Open(f.path())
		check.Must(f.t, err)
		defer read.Close()
		number, err := strconv.Atoi(filepath.Base(name))
		check.Must(f.t, errors.Join(err, unix.Dup3(int(read.Fd()), number, unix.O_CLOEXEC)))
	}
}

// smallDisk mounts a file system of 4 MiB on the state directory, and returns a function that fills it and one that
// frees it.
func (f *fixture) smallDisk() (fillUp, free func()) {
	f.t.Helper()
	check.Root(f.t)
	check.Must(f.t, unix.Mount("tmpfs", f.dir, "tmpfs", 0, "size=4m,mode=0700"))
	f.t.Cleanup(func() { check.NoError(f.t, unix.Unmount(f.dir, unix.MNT_DETACH)) })
	f.restart()
	ballast := filepath.Join(f.dir, "ballast")
	fillUp = func() { check.Error(f.t, os.WriteFile(ballast, make([]byte, 8<<20), 0o600)) }
	return fillUp, func() { check.Must(f.t, os.Remove(ballast)) }
}

// Without space a change succeeds while the file has free pages, and afterwards those succeed that need none.
func TestFullDisk(t *testing.T) {
	f := newFixture(t)
	fillUp, free := f.smallDisk()
	f.write(sample("a"))
	fillUp()
	written := 0
	for _, size := range []int{20_000, 1500} {
		var err error
		for large := sample("b"); err == nil; written++ {
			large.Owner, large.Node = fmt.Sprint("b", written), strings.Repeat("n", size)
			err = f.Write(large)
		}
		check.True(t, errors.Is(err, syscall.ENOSPC) && written > 3, "got %v after %d records; want %v", err, written, syscall.ENOSPC)
		check.Error(t, err, f.path(), "free space")
	}
	before := f.Journal.file
	check.Error(t, f.Writable(), "no space")
	for i := range written {
		check.Must(t, f.Remove("default", fmt.Sprint("b", i)))
	}
	check.Must(t, f.Writable())
	check.True(t, f.Journal.file == before, "the file was written anew")
	free()
	f.wantRecords(sample("a"))
}

// A fault in the mapping is an error, in any goroutine.
func TestTruncatedWhileOpen(t *testing.T) {
	f := newFixture(t)
	f.load()
	for i := range 50 {
		f.write(sample(fmt.Sprint("owner-", i)))
	}
	check.Must(t, os.Truncate(f.path(), 0))
	for range 3 {
		check.Error(t, f.Write(sample("owner-7")), fileName)
		check.Error(t, f.Writable(), fileName, "restart the daemon")
	}
	l := f.restart()
	check.True(t, len(l.Records) == 0 && len(l.Problems) == 1, "loaded %+v", l)
}

// On a disk that has no space for another file, nothing is served and nothing is lost.
func TestLoadOnFullDisk(t *testing.T) {
	f := newFixture(t)
	fillUp, free := f.smallDisk()
	f.write(sample("a"))
	fillUp()
	_, err := f.Load()
	check.True(t, errors.Is(err, syscall.ENOSPC), "got %v; want %v", err, syscall.ENOSPC)
	check.Error(t, err, "free space", "start again")
	check.Error(t, f.Write(sample("b")), "no space")
	check.Equal(t, "files", check.Names(t, f.dir), "ballast "+fileName+" lock")
	free()
	f.wantRecords(sample("a"))
}

// A killed process leaves an unfinished file, of any type.
func TestLeftover(t *testing.T) {
	f := newFixture(t)
	f.write(sample("a"))
	outside := filepath.Join(t.TempDir(), "outside")
	check.Must(t, os.WriteFile(outside, []byte("precious"), 0o600))
	check.Must(t, os.Symlink(outside, filepath.Join(f.dir, newName)))
	f.wantRecords(sample("a"))
	text, err := os.ReadFile(outside)
	check.True(t, err == nil && string(text) == "precious", "the target of the link is %q, %v", text, err)
}

func TestRead(t *testing.T) {
	_, all, err := Read(filepath.Join(t.TempDir(), "none"))
	check.True(t, err == nil && len(all.Records) == 0, "without a directory: %+v, %v", all, err)
	f := newFixture(t)
	f.write(sample("a"), sample("b"))
	metadata, all, err := Read(f.dir) // of a running process
	check.Must(t, err)
	check.Equal(t, "metadata", metadata, Metadata{Format: format, MachineID: "machine", BootID: "boot", Node: "node"})
	check.Equal(t, "contents", all, Loaded{Records: []attachment.Record{sample("a"), sample("b")}})
}

// Every read and every copy is as the journal was at one moment.
func TestReadWhileWritten(t *testing.T) {
	f := newFixture(t)
	f.load()
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			a, b := sample("a"), sample("b")
			a.Generation, b.Generation = i, i
			var changes []boltfile.Entry
			for _, r := range []attachment.Record{a, b, sample(fmt.Sprint("c", i%100))} {
				e, err := f.entry(r)
				check.NoError(t, err)
				changes = append(changes, e)
			}
			check.NoError(t, f.change(changes...))
		}
	}()
	defer func() { close(stop); <-done }()
	for i := range 20 {
		copied := filepath.Join(t.TempDir(), fileName)
		n, err := Backup(f.dir, copied)
		check.Must(t, err)
		for _, dir := range []string{f.dir, filepath.Dir(copied)} {
			_, all, err := Read(dir)
			check.Must(t, err)
			if len(all.Records) > 1 {
				check.Equal(t, "generation", all.Records[1].Generation, all.Records[0].Generation)
			}
			check.True(t, dir == f.dir || len(all.Records) == n, "the copy %d has %d records; want %d", i, len(all.Records), n)
		}
		_, err = Backup(f.dir, copied)
		check.True(t, errors.Is(err, fs.ErrExist), "replaced an existing file: %v", err)
	}
}

// A copy that fails can be repeated when there is space.
func TestBackupWithoutSpace(t *testing.T) {
	f := newFixture(t)
	f.load()
	dir := t.TempDir()
	check.Tmpfs(t, dir, "0700")
	for _, size := range []string{"64k", "64m"} {
		check.Must(t, unix.Mount("", dir, "", unix.MS_REMOUNT, "size="+size))
		_, err := Backup(f.dir, filepath.Join(dir, fileName))
		check.Equal(t, "succeeds with "+size, err == nil, size == "64m")
		check.Equal(t, "files with "+size, check.Names(t, dir) != "", size == "64m")
	}
}

// checkRoundTrip fails if encode and decode change a record.
func checkRoundTrip(t *rapid.T) {
	r := drawRecord().Draw(t, "record")
	data, err := encode(r)
	if err != nil {
		return
	}
	back, err := decode(data)
	if err != nil {
		t.Fatalf("%q was encoded, but not decoded: %v", data, err)
	}
	again, err := json.Marshal(back)
	if err != nil || string(again) != string(data) {
		t.Fatalf("%s became %s, %v", data, again, err)
	}
}

func TestRoundTrip(t *testing.T) { rapid.Check(t, checkRoundTrip) }

func FuzzEncode(f *testing.F) { f.Fuzz(rapid.MakeFuzz(checkRoundTrip)) }
