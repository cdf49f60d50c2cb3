package doctor

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/delegated-ipam/delegated-ipam/internal/plugin/hostlocal"
)

func TestStore(t *testing.T) {
	n := newNode(t)
	n.put("10.15.0.2", "id\r\neth0", "10.15.0.3", "", "10.15.0.4", " \r\n", "fd00::5", "", "lock", "", "last_reserved_ip.0", "10.15.0.4", "note", "")
	must(t, os.Mkdir(filepath.Join(n.store, "10.15.0.9"), 0o755))
	got := n.collect(t.Context(), false)
	wantStore(t, got, ips("10.15.0.2"), ips("10.15.0.3", "10.15.0.4", "fd00::5"), nil)
	if want := (hostlocal.Lease{IP: ips("10.15.0.2")[0], ContainerID: "id", Interface: "eth0"}); got.leases[0] != want {
		t.Errorf("got %+v, want %+v", got.leases[0], want)
	}
}

func TestReadOnly(t *testing.T) {
	n := newNode(t)
	n.collect(t.Context(), false)
	if n.has("") {
		t.Error("the store's directory was created")
	}
	n.put("10.15.0.3", "")
	n.collect(t.Context(), false)
	if n.has("lock") || !n.has("10.15.0.3") {
		t.Error("a lock was created, or a file removed")
	}
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
		if n.has(name) != want {
			t.Errorf("%s is there: %t; want %t", name, !want, want)
		}
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
		if !n.has("10.15.0.3") {
			t.Error("the file was removed without the lock")
		}
	})
}

func TestUnreadableStore(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(n node)
		want   []string
	}{
		"directory is a file": {
			func(n node) { must(n.t, os.WriteFile(n.data, nil, 0o600)) }, []string{"data/pods", "not a directory"},
		},
		"lock links outside the directory": {
			func(n node) { n.put(); must(n.t, os.Symlink("/dev/null", filepath.Join(n.store, "lock"))) },
			[]string{"data/pods/lock", "not a regular file"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			tt.change(n)
			got := n.collect(t.Context(), true)
			if got.err == nil {
				t.Fatal("got no error")
			}
			for _, want := range tt.want {
				if !strings.Contains(got.err.Error(), want) {
					t.Errorf("error %q does not contain %q", got.err, want)
				}
			}
		})
	}
}

func TestRelativeStore(t *testing.T) {
	p := newPool(func(p *pool) { p.stateDir.path = "leases" })
	p.collectStore(t.Context(), true)
	if err := p.store.err; err == nil || !strings.Contains(err.Error(), `ipam.dataDir in /net.d/05.conflist is "leases"; expected an absolute path`) {
		t.Errorf("got %v; want an error that names the key", err)
	}
}

func TestUnreadableFile(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("root may read every file")
	}
	n := newNode(t)
	n.put("10.15.0.3", "")
	must(t, os.Chmod(filepath.Join(n.store, "10.15.0.3"), 0))
	if err := n.collect(t.Context(), false).err; err == nil || !strings.Contains(err.Error(), filepath.Join(n.store, "10.15.0.3")+": permission denied") {
		t.Errorf("got %v, want the path of the file and permission denied", err)
	}
}

func TestOtherPlugin(t *testing.T) {
	n := newNode(t)
	n.put("10.15.0.3", "")
	p := newPool(func(p *pool) { p.stateDir.path, p.plugin.Plugin = n.store, "static" })
	p.collectStore(t.Context(), true)
	if p.store.err != nil || len(p.store.removed) > 0 || !n.has("10.15.0.3") {
		t.Errorf("got %+v, want nothing read", p.store)
	}
}
