package doctor

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"golang.org/x/sys/unix"

	"github.com/delegated-ipam/delegated-ipam/api/models"
	"github.com/delegated-ipam/delegated-ipam/pkg/containerid"
	"github.com/delegated-ipam/delegated-ipam/pkg/delegate/hostlocal"
)

// node is a folder with a CNI configuration and a store of host-local.
type node struct {
	t *testing.T
	// conf is the configuration's file, data the dataDir, store the network's folder.
	conf, data, store string
}

func newNode(t *testing.T) node {
	t.Helper()
	dir := t.TempDir()
	n := node{t: t, conf: filepath.Join(dir, "05-cilium.conflist"), data: filepath.Join(dir, "data")}
	n.store = filepath.Join(n.data, "pods")
	n.configure(map[string]any{"type": "host-local", "dataDir": n.data})
	return n
}

func (n node) configure(ipam map[string]any) {
	n.t.Helper()
	data, err := json.Marshal(map[string]any{
		"cniVersion": "1.0.0", "name": "pods", "plugins": []any{map[string]any{"type": "cilium-cni", "ipam": ipam}},
	})
	must(n.t, err)
	must(n.t, os.WriteFile(n.conf, data, 0o600))
}

// put writes files into the store: pairs of name and content.
func (n node) put(files ...string) {
	n.t.Helper()
	must(n.t, os.MkdirAll(n.store, 0o755))
	for i := 0; i+1 < len(files); i += 2 {
		must(n.t, os.WriteFile(filepath.Join(n.store, files[i]), []byte(files[i+1]), 0o600))
	}
}

// has tells whether the store has a file.
func (n node) has(name string) bool {
	n.t.Helper()
	_, err := os.Lstat(filepath.Join(n.store, name))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		n.t.Fatal(err)
	}
	return err == nil
}

// pool is what the sidecar says of the node's pool.
func (n node) pool() *models.PoolStatus {
	return &models.PoolStatus{
		Pool: "default", Network: "pods", File: n.conf, Plugin: "host-local", Profile: "host-local",
		ProfileFacts: map[string]any{"stateDirKey": "dataDir", "defaultStateDir": filepath.Join(n.data, "by-default")},
	}
}

func (n node) look(ctx context.Context, repair bool) Store {
	n.t.Helper()
	return LookAt(ctx, []*models.PoolStatus{n.pool()}, repair)[0]
}

// lock takes the lock as host-local does; the function that comes back gives it up.
func (n node) lock() func() {
	n.t.Helper()
	f, err := os.OpenFile(filepath.Join(n.store, "lock"), os.O_RDONLY|os.O_CREATE, 0o750)
	must(n.t, err)
	must(n.t, unix.Flock(int(f.Fd()), unix.LOCK_EX))
	return func() { must(n.t, f.Close()) }
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func ips(texts ...string) []netip.Addr {
	var all []netip.Addr
	for _, text := range texts {
		all = append(all, netip.MustParseAddr(text))
	}
	return all
}

// wantStore compares the addresses that were seen.
func wantStore(t *testing.T, got Store, held, empty, removed []netip.Addr) {
	t.Helper()
	if got.Err != nil {
		t.Fatal(got.Err)
	}
	var leased []netip.Addr
	for _, l := range got.Leases {
		leased = append(leased, l.IP)
	}
	for what, c := range map[string]struct{ got, want []netip.Addr }{
		"held": {leased, held}, "empty": {got.Empty, empty}, "removed": {got.Removed, removed},
	} {
		if !slices.Equal(c.got, c.want) {
			t.Errorf("%s are %v; want %v", what, c.got, c.want)
		}
	}
}

func TestEachFileIsAnAddressAndThoseWithoutAContainerIDAreApart(t *testing.T) {
	n := newNode(t)
	n.put("10.15.0.2", "id\r\neth0", "10.15.0.3", "", "10.15.0.4", " \r\n", "fd00::5", "", "lock", "", "last_reserved_ip.0", "10.15.0.4", "note", "")
	must(t, os.Mkdir(filepath.Join(n.store, "10.15.0.9"), 0o755))
	got := n.look(t.Context(), false)
	wantStore(t, got, ips("10.15.0.2"), ips("10.15.0.3", "10.15.0.4", "fd00::5"), nil)
	if want := (hostlocal.Lease{IP: ips("10.15.0.2")[0], ContainerID: "id", Interface: "eth0"}); got.Leases[0] != want {
		t.Errorf("got %+v, want %+v", got.Leases[0], want)
	}
}

func TestLookingWritesNothing(t *testing.T) {
	n := newNode(t)
	n.look(t.Context(), false)
	if n.has("") {
		t.Error("the store's folder was made")
	}
	n.put("10.15.0.3", "")
	n.look(t.Context(), false)
	if n.has("lock") || !n.has("10.15.0.3") {
		t.Error("a lock was made, or a file removed")
	}
}

func TestAStoreThatIsNotThereYetIsEmpty(t *testing.T) {
	n := newNode(t)
	for _, repair := range []bool{false, true} {
		wantStore(t, n.look(t.Context(), repair), nil, nil, nil)
	}
}

func TestWithoutADataDirTheProfilesDefaultIsLookedAt(t *testing.T) {
	n := newNode(t)
	n.configure(map[string]any{"type": "host-local"})
	n.store = filepath.Join(n.data, "by-default", "pods")
	n.put("10.15.0.3", "")
	wantStore(t, n.look(t.Context(), false), nil, ips("10.15.0.3"), nil)
}

func TestRepairRemovesTheFilesWithoutAContainerIDAndNoOthers(t *testing.T) {
	n := newNode(t)
	n.put("10.15.0.2", "id\r\neth0", "10.15.0.3", "", "fd00::5", "\r\n", "last_reserved_ip.0", "", "note", "")
	wantStore(t, n.look(t.Context(), true), ips("10.15.0.2"), nil, ips("10.15.0.3", "fd00::5"))
	for name, want := range map[string]bool{"10.15.0.2": true, "10.15.0.3": false, "fd00::5": false, "last_reserved_ip.0": true, "note": true} {
		if n.has(name) != want {
			t.Errorf("%s is there: %t; want %t", name, !want, want)
		}
	}
	wantStore(t, n.look(t.Context(), true), ips("10.15.0.2"), nil, nil)
}

func TestOneLooksAndRepairsOnlyWhenHostLocalHasGivenUpItsLock(t *testing.T) {
	for name, repair := range map[string]bool{"looking": false, "repairing": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNode(t)
				n.put("10.15.0.2", "", "10.15.0.3", "")
				unlock := n.lock()
				done := make(chan Store, 1)
				go func() { done <- n.look(t.Context(), repair) }()
				synctest.Wait()
				if len(done) > 0 || !n.has("10.15.0.2") || !n.has("10.15.0.3") {
					t.Error("the lock was not waited for")
				}
				n.put("10.15.0.2", "id\r\neth0") // host-local goes on
				unlock()
				empty, removed := ips("10.15.0.3"), []netip.Addr(nil)
				if repair {
					empty, removed = removed, empty
				}
				wantStore(t, <-done, ips("10.15.0.2"), empty, removed)
				if !n.has("10.15.0.2") || n.has("10.15.0.3") == repair {
					t.Error("not exactly the empty file is gone")
				}
			})
		})
	}
}

func TestALockThatIsNeverGivenUpIsAnErrorThatNamesIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		n.put("10.15.0.3", "")
		defer n.lock()()
		ctx, cancel := context.WithCancel(t.Context())
		go func() { synctest.Wait(); cancel() }()
		got := n.look(ctx, true)
		if !errors.Is(got.Err, context.Canceled) || !strings.Contains(got.Err.Error(), filepath.Join(n.store, "lock")) {
			t.Errorf("got %v, want the lock's path and %v", got.Err, context.Canceled)
		}
		if !n.has("10.15.0.3") {
			t.Error("the file was removed without the lock")
		}
	})
}

func TestAStoreThatCannotBeReadSaysWhichFileAndWhy(t *testing.T) {
	tests := map[string]struct {
		spoil func(n node)
		pool  func(p *models.PoolStatus)
		says  []string
	}{
		"its folder is a file": {
			spoil: func(n node) { must(n.t, os.WriteFile(n.data, nil, 0o600)) },
			says:  []string{"data/pods", "not a directory"},
		},
		"its lock leads out of the folder": {
			spoil: func(n node) { n.put(); must(n.t, os.Symlink("/dev/null", filepath.Join(n.store, "lock"))) },
			says:  []string{"data/pods/lock", "escapes"},
		},
		"the configuration is gone": {
			spoil: func(n node) { must(n.t, os.Remove(n.conf)) },
			says:  []string{"05-cilium.conflist", "no such file"},
		},
		"the configuration is of another network by now": {
			pool: func(p *models.PoolStatus) { p.Network = "others" },
			says: []string{"05-cilium.conflist", `"others"`, `"pods"`},
		},
		"the sidecar names no file": {
			pool: func(p *models.PoolStatus) { p.File = "" },
			says: []string{"file"},
		},
		"the profile names no folder": {
			pool: func(p *models.PoolStatus) { p.ProfileFacts = nil },
			says: []string{`"host-local"`, "stateDirKey"},
		},
		"the folder is relative": {
			spoil: func(n node) { n.configure(map[string]any{"type": "host-local", "dataDir": "here"}) },
			says:  []string{"ipam.dataDir", `"here"`, "absolute"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			if tt.spoil != nil {
				tt.spoil(n)
			}
			p := n.pool()
			if tt.pool != nil {
				tt.pool(p)
			}
			got := LookAt(t.Context(), []*models.PoolStatus{p}, true)[0]
			if got.Err == nil {
				t.Fatal("there is no error")
			}
			for _, says := range tt.says {
				if !strings.Contains(got.Err.Error(), says) {
					t.Errorf("got %q; want it to say %q", got.Err, says)
				}
			}
		})
	}
}

func TestAFileThatCannotBeReadIsNamed(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("root may read every file")
	}
	n := newNode(t)
	n.put("10.15.0.3", "")
	must(t, os.Chmod(filepath.Join(n.store, "10.15.0.3"), 0))
	if err := n.look(t.Context(), false).Err; err == nil || !strings.Contains(err.Error(), filepath.Join(n.store, "10.15.0.3")+": permission denied") {
		t.Errorf("got %v, want the file's path and that it must not be read", err)
	}
}

func TestTheFilesOfAnotherPluginAreNotTouched(t *testing.T) {
	n := newNode(t)
	n.put("10.15.0.3", "")
	p := n.pool()
	p.Plugin = "static"
	got := LookAt(t.Context(), []*models.PoolStatus{p}, true)[0]
	if got.Err != nil || got.Dir != "" || len(got.Removed) > 0 || !n.has("10.15.0.3") {
		t.Errorf("got %+v, want nothing looked at", got)
	}
}

// ours is a container ID as the sidecar makes it.
func ours(owner string) string { return containerid.For(owner, "node", "pods") }
