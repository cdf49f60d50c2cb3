package check

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/delegated-ipam/delegated-ipam/api/models"
)

// node is a directory with a CNI configuration and a store of host-local.
type node struct {
	t *testing.T
	// conf is the configuration's file, data the dataDir, store the network's directory.
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

// has reports whether the store has a file.
func (n node) has(name string) bool {
	n.t.Helper()
	_, err := os.Lstat(filepath.Join(n.store, name))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		n.t.Fatal(err)
	}
	return err == nil
}

// pool returns the status of the node's pool.
func (n node) pool() *models.PoolStatus {
	return &models.PoolStatus{
		Pool: "default", Network: "pods", File: n.conf, Plugin: "host-local", Profile: "host-local",
		ProfileFacts: map[string]any{"stateDirKey": "dataDir", "defaultStateDir": filepath.Join(n.data, "by-default")},
	}
}

func (n node) collect(ctx context.Context, repair bool) Store {
	n.t.Helper()
	return collectOne(ctx, n.pool(), repair)
}

// collectOne reads the store of one pool of a sidecar.
func collectOne(ctx context.Context, p *models.PoolStatus, repair bool) Store {
	o := &Observations{Status: &models.DelegatedIPAMStatus{Pools: []*models.PoolStatus{p}}}
	o.CollectStores(ctx, repair)
	return o.Stores[0]
}

// lock locks the store as host-local does and returns the function to unlock it.
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

// wantStore compares the addresses of a store.
func wantStore(t *testing.T, got Store, held, stale, removed []netip.Addr) {
	t.Helper()
	if got.Err != nil {
		t.Fatal(got.Err)
	}
	var leased []netip.Addr
	for _, l := range got.Leases {
		leased = append(leased, l.IP)
	}
	for what, c := range map[string]struct{ got, want []netip.Addr }{
		"held": {leased, held}, "stale": {got.Stale, stale}, "removed": {got.Removed, removed},
	} {
		if !slices.Equal(c.got, c.want) {
			t.Errorf("%s are %v; want %v", what, c.got, c.want)
		}
	}
}
