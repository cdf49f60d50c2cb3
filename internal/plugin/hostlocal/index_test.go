package hostlocal

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/internal/containerid"
)

// indexFixture is a store whose index is compared with readings of it.
type indexFixture struct {
	t      *testing.T
	store  Store
	stores Stores
	ids    []string
}

func newIndexFixture(t *testing.T) *indexFixture {
	f := &indexFixture{t: t, store: Store{Network: "pods", Dir: filepath.Join(t.TempDir(), "pods")}}
	for i := range 3 {
		f.ids = append(f.ids, containerid.For(fmt.Sprint("owner", i), "node", "pods"))
	}
	f.must(os.Mkdir(f.store.Dir, 0o700))
	return f
}

func (f *indexFixture) must(err error) {
	f.t.Helper()
	if err != nil {
		f.t.Fatal(err)
	}
}

func (f *indexFixture) path(name string) string { return filepath.Join(f.store.Dir, name) }

// write writes a file of the store in place.
func (f *indexFixture) write(name, content string) {
	f.t.Helper()
	f.must(os.WriteFile(f.path(name), []byte(content), 0o600))
}

func (f *indexFixture) find(id string) ([]netip.Addr, error) {
	return f.stores.Find(f.store, id, "eth0")
}

// wantSame fails the test if a lookup differs from a reading of the whole store.
func (f *indexFixture) wantSame(after string) {
	f.t.Helper()
	for _, id := range f.ids {
		want, wantErr := f.store.Find(id, "eth0")
		slices.SortFunc(want, netip.Addr.Compare)
		got, err := f.find(id)
		if !slices.Equal(got, want) || (err == nil) != (wantErr == nil) {
			f.t.Fatalf("after %s: got %v, %v for %s; want %v, %v", after, got, err, id, want, wantErr)
		}
	}
}

// A lookup returns what the store has, after changes of any kind.
func TestIndex(t *testing.T) {
	f := newIndexFixture(t)
	names := []string{"10.0.0.1", "10.0.0.2", "10.0.0.3", "fd00::1", "lock"}
	aside := f.store.Dir + ".aside"
	random := rand.New(rand.NewPCG(1, 2))
	content := func() string {
		id := f.ids[random.IntN(len(f.ids))]
		all := []string{id + "\r\neth0", id + "\r\neth1", id + "\r\net", id + "\r\n", id[:9], "", "pod\r\neth0", "pod\r\neth0"}
		return all[random.IntN(len(all))]
	}
	for range 3000 {
		name := names[random.IntN(len(names))]
		op := []string{"write", "append", "restore", "remove", "remove", "move away", "directory", "link", "another directory", "the first directory"}[random.IntN(10)]
		switch op {
		case "write":
			_ = os.WriteFile(f.path(name), []byte(content()), 0o600) // it may be a directory
		case "append":
			if file, err := os.OpenFile(f.path(name), os.O_WRONLY|os.O_APPEND, 0); err == nil {
				_, err = file.WriteString("0")
				f.must(err)
				f.must(file.Close())
			}
		case "restore":
			f.must(os.WriteFile(f.path("restored"), []byte(content()), 0o600))
			_ = os.Rename(f.path("restored"), f.path(name))
		case "remove":
			_ = os.Remove(f.path(name))
		case "move away":
			_ = os.Rename(f.path(name), f.path("away"))
		case "directory":
			_ = os.Mkdir(f.path(name), 0o700)
		case "link":
			_ = os.Symlink("away", f.path(name))
		case "another directory", "the first directory":
			if random.IntN(10) > 0 {
				continue
			}
			if _, err := os.Lstat(aside); err != nil {
				f.must(os.Mkdir(aside, 0o700))
			}
			f.must(os.Rename(aside, aside+"2"))
			f.must(os.Rename(f.store.Dir, aside))
			f.must(os.Rename(aside+"2", f.store.Dir))
		}
		if random.IntN(3) > 0 {
			f.wantSame(op)
		}
	}
}

// Events that the kernel has dropped are not missed.
func TestIndexOverflow(t *testing.T) {
	f := newIndexFixture(t)
	f.write("10.0.0.1", "pod\r\neth0")
	f.write("10.0.0.2", "pod\r\neth0")
	f.wantSame("begin")
	for range 20_000 { // the default of fs.inotify.max_queued_events is 16,384
		f.must(os.Truncate(f.path("10.0.0.1"), 9))
		f.must(os.Truncate(f.path("10.0.0.2"), 9))
	}
	f.write("10.0.0.3", f.ids[0]+"\r\neth0")
	f.wantSame("20,000 changes")
}

// A lookup reads no lease of another container again.
func TestIndexSize(t *testing.T) {
	f := newIndexFixture(t)
	ip := netip.MustParseAddr("10.1.0.0")
	for i := range 2000 {
		f.write(ip.String(), fmt.Sprintf("pod-%d\r\neth0", i))
		ip = ip.Next()
	}
	f.write("10.0.0.1", f.ids[0]+"\r\neth0")
	f.wantSame("begin")
	allocations := testing.AllocsPerRun(10, func() {
		if found, err := f.find(f.ids[1]); len(found) > 0 || err != nil {
			t.Error(found, err)
		}
	})
	if allocations > 20 {
		t.Errorf("a lookup has %v heap allocations; want at most 20", allocations)
	}
}
