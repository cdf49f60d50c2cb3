package doctor

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"golang.org/x/sys/unix"

	"github.com/delegated-ipam/delegated-ipam/internal/plugin/hostlocal"
	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
)

func TestStore(t *testing.T) {
	n := newNode(t)
	n.put("10.15.0.2", "id\r\neth0", "10.15.0.3", "", "10.15.0.4", " \r\n", "fd00::5", "", "lock", "", "last_reserved_ip.0", "10.15.0.4", "note", "")
	check.Must(t, os.Mkdir(filepath.Join(n.store, "10.15.0.9"), 0o755))
	got := n.collect(t.Context(), false)
	wantStore(t, got, ips("10.15.0.2"), ips("10.15.0.3", "10.15.0.4", "fd00::5"), nil)
	if want := (hostlocal.Lease{IP: ips("10.15.0.2")[0], ContainerID: "id", Interface: "eth0"}); got.leases[0] != want {
		t.Errorf("got %+v, want %+v", got.leases[0], want)
	}
}

func TestReadOnly(t *testing.T) {
	n := newNode(t)
	n.collect(t.Context(), false)
	check.True(t, !n.has(""), "the store's directory was created")
	n.put("10.15.0.3", "")
	n.collect(t.Context(), false)
	check.True(t, !n.has("lock") && n.has("10.15.0.3"), "a lock was created, or a file removed")
}

func TestMissingStore(t *testing.T) {
	n := newNode(t)
	for _, repair := range []bool{false, true} {
		wantStore(t, n.collect(t.Context(), repair), nil, nil, nil)
	}
}

func TestRepair(t *testing.T) {
	n := newNode(t)
	n.put("10.15.0.2", "id\r\neth0", "10.15.0.3", "", "fd00::5", "\r\n", "last_reserved_ip.0", "", "note", "")
	wantStore(t, n.collect(t.Context(), true), ips("10.15.0.2"), nil, ips("10.15.0.3", "fd00::5"))
	for name, want := range map[string]bool{"10.15.0.2": true, "10.15.0.3": false, "fd00::5": false, "last_reserved_ip.0": true, "note": true} {
		check.True(t, n.has(name) == want, "%s is there: %t; want %t", name, !want, want)
	}
	wantStore(t, n.collect(t.Context(), true), ips("10.15.0.2"), nil, nil)
}

func TestStoreLock(t *testing.T) {
	for name, repair := range map[string]bool{"read": false, "repair": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNode(t)
				n.put("10.15.0.2", "", "10.15.0.3", "")
				unlock := n.lock()
				done := make(chan store, 1)
				go func() { done <- n.collect(t.Context(), repair) }()
				synctest.Wait()
				if len(done) > 0 || !n.has("10.15.0.2") || !n.has("10.15.0.3") {
					t.Error("it did not wait for the lock")
				}
				n.put("10.15.0.2", "id\r\neth0") // host-local continues
				unlock()
				stale, removed := ips("10.15.0.3"), []netip.Addr(nil)
				if repair {
					stale, removed = removed, stale
				}
				wantStore(t, <-done, ips("10.15.0.2"), stale, removed)
				if !n.has("10.15.0.2") || n.has("10.15.0.3") == repair {
					t.Error("want exactly the stale file removed, by a repair only")
				}
			})
		})
	}
}

func TestStoreLockTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		n.put("10.15.0.3", "")
		defer n.lock()()
		ctx, cancel := context.WithCancel(t.Context())
		go func() { synctest.Wait(); cancel() }()
		got := n.collect(ctx, true)
		if !errors.Is(got.err, context.Canceled) || !strings.Contains(got.err.Error(), filepath.Join(n.store, "lock")) {
			t.Errorf("got %v, want the lock's path and %v", got.err, context.Canceled)
		}
		check.True(t, n.has("10.15.0.3"), "the file was removed without the lock")
	})
}

// A store that cannot be read or locked is untouched, and so is what its lock links to.
func TestUnreadableStore(t *testing.T) {
	lock := func(target string) func(n node) {
		return func(n node) {
			n.put("10.15.0.3", "")
			check.Must(n.t, os.Symlink(target, filepath.Join(n.store, "lock")))
		}
	}
	dir := outside(t)
	for name, tt := range map[string]struct {
		change func(n node)
		want   []string
	}{
		"data directory is a file": {func(n node) { check.Must(n.t, os.WriteFile(n.data, nil, 0o600)) }, []string{"data/pods", "not a directory"}},
		"store is a pipe": {func(n node) {
			check.Must(n.t, os.Mkdir(n.data, 0o755))
			check.Must(n.t, unix.Mkfifo(n.store, 0o600))
		}, []string{"not a directory"}},
		"lock is a pipe": {func(n node) {
			n.put("10.15.0.3", "")
			check.Must(n.t, unix.Mkfifo(filepath.Join(n.store, "lock"), 0o600))
		}, []string{"data/pods/lock"}},
		"lock links to a device":        {lock("/dev/null"), []string{"data/pods/lock", "not a regular file"}},
		"lock links to a file outside":  {lock(filepath.Join(dir, "10.15.0.3")), []string{"data/pods/lock"}},
		"lock links to no file outside": {lock(filepath.Join(dir, "10.15.0.9")), []string{"data/pods/lock"}},
		"lock links to no file inside":  {lock("10.15.0.9"), []string{"data/pods/lock"}},
		"lock links to a lease file":    {lock("10.15.0.3"), []string{"data/pods/lock"}},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			tt.change(n)
			for _, repair := range []bool{true, false} {
				check.Error(t, n.collect(t.Context(), repair).err, tt.want...)
			}
			if info, err := os.Stat(n.store); err == nil && info.IsDir() {
				check.Equal(t, "files in the store", check.Names(t, n.store), "10.15.0.3 lock")
			}
			check.Equal(t, "files outside", check.Names(t, dir), "10.15.0.3")
		})
	}
}

func TestRelativeStore(t *testing.T) {
	p := newPool(func(p *pool) { p.stateDir.path = "leases" })
	p.collectStore(t.Context(), true)
	check.Error(t, p.store.err, `ipam.dataDir in /net.d/05.conflist is "leases"; expected an absolute path`)
}

func TestUnreadableFile(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("root may read every file")
	}
	n := newNode(t)
	n.put("10.15.0.3", "")
	check.Must(t, os.Chmod(filepath.Join(n.store, "10.15.0.3"), 0))
	check.Error(t, n.collect(t.Context(), false).err, filepath.Join(n.store, "10.15.0.3")+": permission denied")
}

func TestOtherPlugin(t *testing.T) {
	n := newNode(t)
	n.put("10.15.0.3", "")
	p := newPool(func(p *pool) { p.stateDir.path, p.network.IPAMType = n.store, "static" })
	p.collectStore(t.Context(), true)
	if p.store.err != nil || len(p.store.removed) > 0 || !n.has("10.15.0.3") {
		t.Errorf("got %+v, want nothing read", p.store)
	}
}

func TestNonCanonicalNames(t *testing.T) {
	n := newNode(t)
	others := []string{"FD00::5", "fd00:0::5", "fd00::5%eth0", "::ffff:10.15.0.2%x"}
	n.put("fd00::5", "id\r\neth0")
	for _, name := range others {
		n.put(name, "")
	}
	wantStore(t, n.collect(t.Context(), true), ips("fd00::5"), nil, nil)
	for _, name := range append(others, "fd00::5") {
		check.True(t, n.has(name), "%s was removed", name)
	}
}

func TestUnexpectedFiles(t *testing.T) {
	n := newNode(t)
	n.put("10.15.0.2", "id\r\neth0", "elsewhere", "", "10.15.0.6", strings.Repeat(" ", hostlocal.MaxLease))
	at := func(name string) string { return filepath.Join(n.store, name) }
	check.Must(t, unix.Mkfifo(at("10.15.0.3"), 0o600))
	check.Must(t, os.Mkdir(at("10.15.0.4"), 0o700))
	check.Must(t, os.Symlink("elsewhere", at("10.15.0.5")))
	got := n.collect(t.Context(), true)
	wantStore(t, got, ips("10.15.0.2"), nil, nil)
	if want := ips("10.15.0.3", "10.15.0.4", "10.15.0.5", "10.15.0.6"); !slices.Equal(got.unexpected, want) {
		t.Errorf("unexpected are %v; want %v", got.unexpected, want)
	}
	for _, ip := range got.unexpected {
		check.True(t, n.has(ip.String()), "%s was removed", ip)
	}
}

// outside creates a directory with a stale file of an address, outside of the data directory.
func outside(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	check.Must(t, os.WriteFile(filepath.Join(dir, "10.15.0.3"), nil, 0o600))
	return dir
}

//evidence:operate/security a link or FIFO in host-local's directory when root runs `doctor --repair`
func TestRepairLinkedNetwork(t *testing.T) {
	for name, target := range map[string]func(n node) string{
		"outside": func(node) string { return outside(t) },
		"in the data directory": func(n node) string {
			n.put("10.15.0.3", "")
			check.Must(t, os.Rename(n.store, n.store+"-other"))
			return "pods-other"
		},
		"its own parent's sibling":  func(n node) string { dir := outside(t); check.Must(t, os.Rename(dir, n.data+"-2")); return "../data-2" },
		"a link to another outside": func(n node) string { check.Must(t, os.Symlink(outside(t), n.data+"-link")); return n.data + "-link" },
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			check.Must(t, os.Mkdir(n.data, 0o755))
			check.Must(t, os.Symlink(target(n), n.store))
			got := n.collect(t.Context(), true)
			check.Error(t, got.err, n.store, "symbolic link")
			if left := check.Names(t, n.store); len(got.removed) > 0 || left != "10.15.0.3" {
				t.Errorf("removed %v, and the target of the link has %q; want it untouched", got.removed, left)
			}
		})
	}
}

func TestReadLinkedNetwork(t *testing.T) {
	n := newNode(t)
	check.Must(t, os.Mkdir(n.data, 0o755))
	check.Must(t, os.Symlink(outside(t), n.store))
	wantStore(t, n.collect(t.Context(), false), nil, ips("10.15.0.3"), nil)
}

//evidence:operate/security a link or FIFO in host-local's directory when root runs `doctor --repair`
func TestRepairLinkedDataDir(t *testing.T) {
	n := newNode(t)
	n.put("10.15.0.3", "")
	check.Must(t, os.Rename(n.data, n.data+"-real"))
	check.Must(t, os.Symlink("data-real", n.data)) // the path of the administrator
	wantStore(t, n.collect(t.Context(), true), nil, nil, ips("10.15.0.3"))
}

//evidence:operate/security a link or FIFO in host-local's directory when root runs `doctor --repair`
func TestRepairLinkedLease(t *testing.T) {
	n := newNode(t)
	n.put()
	dir := outside(t)
	check.Must(t, os.Symlink(filepath.Join(dir, "10.15.0.3"), filepath.Join(n.store, "10.15.0.3")))
	got := n.collect(t.Context(), true)
	wantStore(t, got, nil, nil, nil)
	if len(got.unexpected) != 1 || !n.has("10.15.0.3") || check.Names(t, dir) != "10.15.0.3" {
		t.Errorf("unexpected are %v, the directory outside has %q; want link and target untouched", got.unexpected, check.Names(t, dir))
	}
}
