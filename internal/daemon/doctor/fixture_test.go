package doctor

import (
	"context"
	"errors"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/delegated-ipam/delegated-ipam/internal/containerid"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/hostlocal"
	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
)

type node struct {
	t *testing.T
	// data is the dataDir, store the network's directory.
	data, store string
}

func newNode(t *testing.T) node {
	t.Helper()
	data := filepath.Join(t.TempDir(), "data")
	return node{t: t, data: data, store: filepath.Join(data, "pods")}
}

// put writes files into the store: pairs of name and content.
func (n node) put(files ...string) {
	n.t.Helper()
	check.Must(n.t, os.MkdirAll(n.store, 0o755))
	for i := 0; i+1 < len(files); i += 2 {
		check.Must(n.t, os.WriteFile(filepath.Join(n.store, files[i]), []byte(files[i+1]), 0o600))
	}
}

func (n node) has(name string) bool {
	n.t.Helper()
	_, err := os.Lstat(filepath.Join(n.store, name))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		n.t.Fatal(err)
	}
	return err == nil
}

func (n node) collect(ctx context.Context, repair bool) store {
	n.t.Helper()
	p := newPool(func(p *pool) { p.stateDir.path = n.store })
	p.collectStore(ctx, repair)
	return p.store
}

// lock locks the store as host-local does and returns the function to unlock it.
func (n node) lock() func() {
	n.t.Helper()
	f, err := os.OpenFile(filepath.Join(n.store, "lock"), os.O_RDONLY|os.O_CREATE, 0o750)
	check.Must(n.t, err)
	check.Must(n.t, unix.Flock(int(f.Fd()), unix.LOCK_EX))
	return func() { check.Must(n.t, f.Close()) }
}

func ips(texts ...string) []netip.Addr {
	var all []netip.Addr
	for _, text := range texts {
		all = append(all, netip.MustParseAddr(text))
	}
	return all
}

func wantStore(t *testing.T, got store, held, stale, removed []netip.Addr) {
	t.Helper()
	if got.err != nil {
		t.Fatal(got.err)
	}
	var leased []netip.Addr
	for _, l := range got.leases {
		leased = append(leased, l.IP)
	}
	for what, c := range map[string]struct{ got, want []netip.Addr }{
		"held": {leased, held}, "stale": {got.stale, stale}, "removed": {got.removed, removed},
	} {
		check.True(t, slices.Equal(c.got, c.want), "%s are %v; want %v", what, c.got, c.want)
	}
}

func leased(ip, containerID string) hostlocal.Lease {
	return hostlocal.Lease{IP: netip.MustParseAddr(ip), ContainerID: containerID, Interface: "eth0"}
}

func ownID(owner string) string { return containerid.For(owner, "node", "pods") }

const ok, warning, failed = OK, Warning, Error

func states(all ...State) []State { return all }

type testCase struct {
	found    []Finding
	states   []State
	contains []string
}

func runCases(t *testing.T, cases map[string]testCase) {
	t.Helper()
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			var got []State
			var all strings.Builder
			for _, f := range c.found {
				got = append(got, f.State)
				all.WriteString(f.Message + " | " + f.Remedy + "\n")
			}
			if !slices.Equal(got, c.states) {
				t.Errorf("states are %q; want %q\n%s", got, c.states, all.String())
			}
			check.Contains(t, all.String(), c.contains...)
			wantRemedies(t, c.found)
		})
	}
}

// wantRemedies checks that each finding has a message, and a remedy unless it is OK.
func wantRemedies(t *testing.T, found []Finding) {
	t.Helper()
	for _, f := range found {
		if f.Message == "" || (f.State != OK) != (f.Remedy != "") {
			t.Errorf("%+v lacks its message or remedy, or has a remedy although it is ok", f)
		}
	}
}

func run(o *Observations, names ...string) []Finding {
	r := &report{}
	for _, c := range checks {
		if slices.Contains(names, c.Name) {
			r.check = c.Name
			r.begin("")
			c.run(o, r)
		}
	}
	return r.findings
}

func reported(check func(*report)) []Finding {
	r := &report{}
	check(r)
	return r.findings
}
