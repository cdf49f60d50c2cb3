package journal

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"go.etcd.io/bbolt"

	"github.com/delegated-ipam/delegated-ipam/internal/boltfile"
	"github.com/delegated-ipam/delegated-ipam/internal/daemon/attachment"
	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
)

// edit changes the file of a stopped process by bbolt.
func (f *fixture) edit(change func(tx *bbolt.Tx) error) {
	f.t.Helper()
	f.Close()
	db, err := bbolt.Open(f.path(), 0o600, nil)
	check.Must(f.t, err)
	check.Must(f.t, errors.Join(db.Update(change), db.Close()))
}

// rewrite changes the bytes of the file of a stopped process.
func (f *fixture) rewriteFile(change func(data []byte) []byte) {
	f.t.Helper()
	f.Close()
	data, err := os.ReadFile(f.path())
	check.Must(f.t, errors.Join(err, os.WriteFile(f.path(), change(data), 0o600)))
}

// wantProblem wants a start that returns these records and a problem, and every start after it to report it.
func (f *fixture) wantProblem(owner, reason string, records ...attachment.Record) {
	f.t.Helper()
	l := f.restart()
	check.Equal(f.t, "records", l.Records, records)
	if len(l.Problems) != 1 || l.Problems[0].Owner != owner || !strings.Contains(l.Problems[0].Reason.Error(), reason) {
		f.t.Fatalf("problems %+v; want one of owner %q with the reason %q", l.Problems, owner, reason)
	}
	all, err := f.Quarantined()
	check.Must(f.t, err)
	check.True(f.t, len(all) == 1 && strings.Contains(all[0].Reason, reason) && !all[0].Since.IsZero(), "quarantined are %+v; want the reason %q", all, reason)
	check.Equal(f.t, "loaded again", f.restart(), Loaded{Records: records, BootID: "boot"})
	all, err = f.Quarantined()
	check.Must(f.t, err)
	check.True(f.t, len(all) == 1 && strings.Contains(all[0].Reason, reason), "after a restart quarantined are %+v; want the reason %q", all, reason)
}

// A damaged record is quarantined alone.
func TestDamagedRecord(t *testing.T) {
	b := sample("b")
	b.Pool = "blue"
	text := func(r attachment.Record) []byte {
		raw, err := json.Marshal(r)
		check.Must(t, err)
		return raw
	}
	unknown := sample("b")
	unknown.Pool, unknown.State = "blue", "unknown"
	for name, tt := range map[string]struct {
		value  []byte
		reason string
	}{
		"flipped bit":         {bytes.Replace(seal(key("blue", "b"), text(b)), []byte("10.1.0.7"), []byte("10.1.0.6"), 1), "checksum"},
		"damaged checksum":    {append([]byte("00000000"), seal(key("blue", "b"), text(b))[8:]...), "checksum"},
		"no checksum":         {text(b), "checksum"},
		"empty":               {[]byte{}, "checksum"},
		"zeros":               {make([]byte, 500), "checksum"},
		"of another key":      {seal(key("blue", "c"), text(b)), "checksum"},
		"of another owner":    {seal(key("blue", "b"), text(sample("c"))), `owner "c"`},
		"not JSON":            {seal(key("blue", "b"), []byte("{")), "cannot be read"},
		"not a usable record": {seal(key("blue", "b"), text(unknown)), "unknown state"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			f.write(sample("a"), b, sample("z"))
			f.edit(func(tx *bbolt.Tx) error {
				totals := totalsOf([]boltfile.Entry{{Value: seal(nil, nil)}, {Value: seal(nil, nil)}, {Value: seal(nil, nil)}})
				if tt.reason != "checksum" { // written so by another build
					totals.Sum = 0
					check.Must(t, tx.Bucket(recordsBucket).Put(key("blue", "b"), tt.value))
					check.Must(t, tx.Bucket(recordsBucket).ForEach(func(_, v []byte) error { totals.Sum += sumOf(v); return nil }))
					return put(tx.Bucket(metadataBucket), totalsKey, totals)
				}
				return tx.Bucket(recordsBucket).Put(key("blue", "b"), tt.value)
			})
			f.wantProblem("b", tt.reason, sample("a"), sample("z"))
			check.Contains(t, check.Names(t, filepath.Join(f.dir, QuarantineName)), "blue%2Fb-")
			f.write(b)
			f.wantRecords(b, sample("a"), sample("z"))
		})
	}
}

// A file is filled in several transactions, and known as damaged until it has the last one.
func TestFill(t *testing.T) {
	want := content{Metadata: Metadata{MachineID: "machine"}}
	for i := range 2*fillSize + 1 {
		k := fmt.Appendf(nil, "default\x00%05d", i)
		want.records = append(want.records, boltfile.Entry{Key: k, Value: seal(k, []byte("{}"))})
	}
	steps := want.fill()
	check.Equal(t, "number of transactions", len(steps), 4)
	dir, err := os.OpenRoot(t.TempDir())
	check.Must(t, err)
	defer dir.Close()
	for n := 1; n <= len(steps); n++ {
		name := fmt.Sprint(n)
		f, err := boltfile.Create(dir, name, steps[:n]...)
		check.Must(t, err)
		f.Close()
		got, err := readFile(dir, name)
		if n < len(steps) {
			_, damaged := errors.AsType[boltfile.DamageError](err)
			check.True(t, damaged, "after %d transactions: %v; want a damage", n, err)
			continue
		}
		check.Must(t, err)
		check.Equal(t, "records", got.records, want.records)
	}
}

// A file that cannot be trusted as a whole is quarantined, and the journal is empty.
func TestDamagedFile(t *testing.T) {
	records := func(change func(b *bbolt.Bucket) error) func(f *fixture) {
		return func(f *fixture) { f.edit(func(tx *bbolt.Tx) error { return change(tx.Bucket(recordsBucket)) }) }
	}
	bytesOf := func(change func(data []byte) []byte) func(f *fixture) {
		return func(f *fixture) { f.rewriteFile(change) }
	}
	for name, tt := range map[string]struct {
		damage func(f *fixture)
		reason string
	}{
		"empty":               {bytesOf(func([]byte) []byte { return nil }), "beyond the end"},
		"truncated":           {bytesOf(func(data []byte) []byte { return data[:3*boltfile.PageSize] }), "beyond the end"},
		"zeros":               {bytesOf(func(data []byte) []byte { return make([]byte, len(data)) }), "meta page 0"},
		"not a database":      {bytesOf(func([]byte) []byte { return bytes.Repeat([]byte("text"), 9000) }), "damaged"},
		"too large":           {func(f *fixture) { f.Close(); check.Must(f.t, os.Truncate(f.path(), boltfile.MaxSize+1)) }, "expected at most"},
		"a record is missing": {records(func(b *bbolt.Bucket) error { return b.Delete(key("default", "a")) }), "1 of 2 records"},
		"a record is older": {records(func(b *bbolt.Bucket) error {
			older := sample("a")
			older.State = attachment.Adding
			raw, err := encode(older)
			return errors.Join(err, b.Put(key("default", "a"), seal(key("default", "a"), raw)))
		}), "older"},
		"no metadata": {func(f *fixture) {
			f.edit(func(tx *bbolt.Tx) error { return tx.DeleteBucket(metadataBucket) })
		}, "format 0"},
		"damaged metadata": {func(f *fixture) {
			f.edit(func(tx *bbolt.Tx) error { return tx.Bucket(metadataBucket).Put(totalsKey, []byte("x")) })
		}, `"totals"`},
		"of another machine": {func(f *fixture) { f.options.MachineID, f.options.Node = "other", "node 2" }, "another machine (machine ID machine; expected other)"},
		"a directory": {func(f *fixture) {
			f.Close()
			check.Must(f.t, errors.Join(os.Remove(f.path()), os.Mkdir(f.path(), 0o700)))
		}, "not a regular file"},
		"a symbolic link": {func(f *fixture) {
			f.Close()
			check.Must(f.t, errors.Join(os.Rename(f.path(), f.path()+".copy"), os.Symlink(f.path()+".copy", f.path())))
		}, "not a regular file"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			f.write(sample("a"), sample("b"))
			tt.damage(f)
			f.wantProblem("", tt.reason)
			check.Contains(t, check.Names(t, filepath.Join(f.dir, QuarantineName)), fileName+"-")
			f.write(sample("a"))
			f.wantRecords(sample("a"))
		})
	}
}

// Whatever bytes change, a start returns each record as it was written, or reports what is missing.
func TestRotIsNeverSilent(t *testing.T) {
	f := newFixture(t)
	written := map[string]attachment.Record{}
	for i := range 60 {
		r := sample(fmt.Sprintf("owner-%02d", i%40))
		r.Generation, r.Node = i, strings.Repeat("n", 20*i)
		f.write(r)
		written[r.Owner] = r
	}
	f.Close()
	whole, err := os.ReadFile(f.path())
	check.Must(t, err)
	used := len(bytes.TrimRight(whole, "\x00"))
	dice := rand.New(rand.NewPCG(3, 4))
	damages := map[string]func(data []byte){
		"bit": func(data []byte) { data[dice.IntN(used)] ^= 1 << dice.IntN(8) },
		"header": func(data []byte) {
			data[dice.IntN(used/boltfile.PageSize)*boltfile.PageSize+dice.IntN(96)] ^= 1 << dice.IntN(8)
		},
		"hole": func(data []byte) {
			at := dice.IntN(used/512) * 512
			clear(data[at : at+512<<dice.IntN(4)])
		},
		"page of another place": func(data []byte) {
			to, from := dice.IntN(used/boltfile.PageSize), dice.IntN(used/boltfile.PageSize)
			copy(data[to*boltfile.PageSize:(to+1)*boltfile.PageSize], whole[from*boltfile.PageSize:])
		},
	}
	found, cases := 0, 2500
	if testing.Short() {
		cases /= 5
	}
	for name, damage := range damages {
		for range cases {
			data := slices.Clone(whole)
			damage(data)
			var c content
			buckets, err := boltfile.Read(bytes.NewReader(data))
			if err == nil {
				c, err = contentOf(buckets)
			}
			if err != nil {
				found++
				continue
			}
			intact := 0
			for _, e := range c.records {
				r, err := recordOf(e)
				if err != nil {
					found++
					continue
				}
				intact++
				check.Equal(t, "record of "+r.Owner+" after a damage of a "+name, r, written[r.Owner])
			}
			if len(c.records) != len(written) {
				t.Fatalf("%s: %d records, %d of them intact; want %d", name, len(c.records), intact, len(written))
			}
		}
	}
	check.True(t, found > 1000, "only %d damages were found: the test proves little", found)
}

// A newer program has written the file: it is neither used nor moved.
func TestNewerFormat(t *testing.T) {
	f := newFixture(t)
	f.write(sample("a"))
	f.edit(func(tx *bbolt.Tx) error {
		return put(tx.Bucket(metadataBucket), metadataKey, Metadata{Format: format + 1})
	})
	before, err := os.ReadFile(f.path())
	check.Must(t, err)
	_, err = f.Load()
	check.Error(t, err, "format 5", "up to 4", "start the version that has written it")
	_, _, err = Read(f.dir)
	check.Error(t, err, "format 5")
	after, err := os.ReadFile(f.path())
	check.True(t, err == nil && bytes.Equal(before, after), "the file was changed, %v", err)
	check.Equal(t, "files", check.Names(t, f.dir), fileName+" lock")
}

// An unreadable file may be intact, so it stays, and nothing is served.
func TestUnreadableFile(t *testing.T) {
	f := newFixture(t)
	f.write(sample("a"))
	f.Close()
	check.Must(t, os.Chmod(f.path(), 0))
	var err error
	check.WithoutPrivileges(t, func() { _, err = f.Load() })
	check.True(t, errors.Is(err, syscall.EACCES), "got %v; want %v", err, syscall.EACCES)
	check.Error(t, err, f.path(), "permission", "start again")
	check.Must(t, os.Chmod(f.path(), 0o600))
	f.wantRecords(sample("a"))
}

// What a command does not know stays as in the file: it may only delete a record.
func TestUnknownMachine(t *testing.T) {
	f := newFixture(t)
	f.write(sample("a"))
	f.options.MachineID, f.options.Node = "", ""
	f.wantRecords(sample("a"))
	f.options.MachineID, f.options.Node = "other", "node"
	f.wantRecords(sample("a")) // the node in the same boot
	f.options.MachineID, f.options.Node = "third", "node 2"
	f.wantProblem("", "another machine (machine ID other; expected third)")
}

// A node in the same boot is the same machine, whose ID then is the new one.
func TestMachineIDChangesInBoot(t *testing.T) {
	f := newFixture(t)
	f.write(sample("a"))
	f.options.MachineID = "next"
	f.wantRecords(sample("a"))
	f.options.MachineID, f.options.BootID = "machine", "next boot"
	got := f.restart()
	check.Equal(t, "records", len(got.Records), 0)
	check.Error(t, got.Problems[0].Reason, "another machine (machine ID next; expected machine)")
}

func TestQuarantineRemoved(t *testing.T) {
	f := newFixture(t)
	all, err := f.Quarantined()
	check.True(t, err == nil && len(all) == 0, "got %+v, %v", all, err)
	check.Must(t, os.WriteFile(filepath.Join(f.dir, QuarantineName), nil, 0o600))
	_, err = f.Quarantined()
	check.True(t, err != nil && !errors.Is(err, fs.ErrNotExist), "got %v; want that it is not a directory", err)
	f.write(sample("a"))
	f.rewriteFile(func([]byte) []byte { return nil })
	_, err = f.Load()
	check.Error(t, err, QuarantineName, "start again")
}

// The boot of the metadata changes when the leftovers of the previous one are released.
func TestSetBoot(t *testing.T) {
	f := newFixture(t)
	f.write(sample("a"))
	for range 2 {
		f.options.BootID = "next boot"
		check.Equal(t, "boot of the metadata", f.restart().BootID, "boot")
	}
	check.Must(t, f.SetBoot("next boot"))
	f.write(sample("b"))
	open, err := filepath.Glob("/proc/self/fd/*")
	check.Must(t, err)
	for _, fd := range open {
		if target, _ := os.Readlink(fd); strings.Contains(target, f.dir) && strings.HasSuffix(target, "(deleted)") {
			t.Errorf("the file before is open: %s", target)
		}
	}
	got := f.restart()
	check.Equal(t, "boot", got.BootID, "next boot")
	check.Equal(t, "records", len(got.Records), 2)
}

// Starts that fail leave one file of a record in quarantine, which the one that succeeds completes.
func TestQuarantineWithoutSpace(t *testing.T) {
	for name, spare := range map[string]int64{"for the record": 0, "for the journal": 64 << 10} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			check.Tmpfs(t, f.dir, "0700")
			f.stop()
			f.start(f.options)
			f.write(sample("a"), sample("b"))
			f.edit(func(tx *bbolt.Tx) error { return tx.Bucket(recordsBucket).Put(key("default", "b"), make([]byte, 500)) })
			var s syscall.Statfs_t
			check.Must(t, syscall.Statfs(f.dir, &s))
			resize := func(size int64) {
				check.Must(t, syscall.Mount("", f.dir, "", syscall.MS_REMOUNT, fmt.Sprint("size=", size)))
			}
			resize(int64(s.Blocks-s.Bfree)*s.Bsize + spare)
			for range 3 {
				f.stop()
				f.start(f.options)
				_, err := f.Load()
				check.Error(t, err, "no space left on device")
			}
			resize(64 << 20)
			f.wantProblem("b", "checksum", sample("a"))
		})
	}
}
