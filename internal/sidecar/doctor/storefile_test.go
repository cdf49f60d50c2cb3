package doctor

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/delegated-ipam/delegated-ipam/internal/plugin/hostlocal"
)

func TestNonCanonicalNames(t *testing.T) {
	n := newNode(t)
	others := []string{"FD00::5", "fd00:0::5", "fd00::5%eth0", "::ffff:10.15.0.2%x"}
	n.put("fd00::5", "id\r\neth0")
	for _, name := range others {
		n.put(name, "")
	}
	wantStore(t, n.collect(t.Context(), true), ips("fd00::5"), nil, nil)
	for _, name := range append(others, "fd00::5") {
		if !n.has(name) {
			t.Errorf("%s was removed", name)
		}
	}
}

func TestUnexpectedFiles(t *testing.T) {
	n := newNode(t)
	n.put("10.15.0.2", "id\r\neth0", "elsewhere", "", "10.15.0.6", strings.Repeat(" ", hostlocal.MaxLease))
	at := func(name string) string { return filepath.Join(n.store, name) }
	must(t, unix.Mkfifo(at("10.15.0.3"), 0o600))
	must(t, os.Mkdir(at("10.15.0.4"), 0o700))
	must(t, os.Symlink("elsewhere", at("10.15.0.5")))
	got := n.collect(t.Context(), true)
	wantStore(t, got, ips("10.15.0.2"), nil, nil)
	if want := ips("10.15.0.3", "10.15.0.4", "10.15.0.5", "10.15.0.6"); !slices.Equal(got.unexpected, want) {
		t.Errorf("unexpected are %v; want %v", got.unexpected, want)
	}
	for _, ip := range got.unexpected {
		if !n.has(ip.String()) {
			t.Errorf("%s was removed", ip)
		}
	}
}

func TestLockIsPipe(t *testing.T) {
	for _, repair := range []bool{false, true} {
		n := newNode(t)
		n.put()
		must(t, unix.Mkfifo(filepath.Join(n.store, "lock"), 0o600))
		if err := n.collect(t.Context(), repair).err; err == nil || !strings.Contains(err.Error(), filepath.Join(n.store, "lock")) {
			t.Errorf("repair %t: %v; want an error that names the lock", repair, err)
		}
	}
}
