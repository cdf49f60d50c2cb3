package oracle_test

import (
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/test/oracle"
)

func lease(ip, id string) oracle.Lease {
	return oracle.Lease{Network: "pods", IP: netip.MustParseAddr(ip), ContainerID: id, Interface: "eth0"}
}

func TestCompare(t *testing.T) {
	a, b := lease("10.0.0.2", "a"), lease("fd00::2", "b")
	stolen := lease("10.0.0.2", "b")
	tests := map[string]struct {
		plugin, listed []oracle.Lease
		want           []string
	}{
		"both empty":     {},
		"another order":  {plugin: []oracle.Lease{a, b}, listed: []oracle.Lease{b, a}},
		"leaked address": {plugin: []oracle.Lease{a, b}, listed: []oracle.Lease{a}, want: []string{"only the plugin's store has fd00::2"}},
		"lost address":   {plugin: []oracle.Lease{a}, listed: []oracle.Lease{a, b}, want: []string{"only the daemon's list has fd00::2"}},
		"another holder": {plugin: []oracle.Lease{a}, listed: []oracle.Lease{stolen}, want: []string{`only the plugin's store has 10.0.0.2 in network "pods" of container ID "a"`, `only the daemon's list has 10.0.0.2 in network "pods" of container ID "b"`}},
		"address twice":  {plugin: []oracle.Lease{a}, listed: []oracle.Lease{a, stolen}, want: []string{"the daemon's list has an address twice"}},
	}
	for name, tt := range tests {
		wantError(t, name, oracle.Compare(tt.plugin, tt.listed), tt.want)
	}
}

// wantError wants an error with each text, or none without a text.
func wantError(t *testing.T, name string, err error, want []string) {
	t.Helper()
	if (err == nil) != (len(want) == 0) {
		t.Errorf("%s: got %v; want an error with %q", name, err, want)
	}
	for _, text := range want {
		if err != nil && !strings.Contains(err.Error(), text) {
			t.Errorf("%s: got %v; want it to contain %q", name, err, text)
		}
	}
}

func TestHostLocal(t *testing.T) {
	dir := t.TempDir()
	if got, err := oracle.HostLocal(filepath.Join(dir, "none")); err != nil || len(got) != 0 {
		t.Errorf("got %v, %v; want no lease of a missing directory and no error", got, err)
	}
	write(t, dir, "10.0.0.2", "a\r\neth0")
	write(t, dir, "fd00::2", "b\r\neth0")
	write(t, dir, "last_reserved_ip.0", "10.0.0.2")
	write(t, dir, "lock", "")
	want := []oracle.Lease{lease("10.0.0.2", "a"), lease("fd00::2", "b")}
	got, err := oracle.HostLocal(dir)
	if err := errors.Join(err, oracle.Compare(got, want)); err != nil {
		t.Error(err)
	}

	write(t, dir, "10.0.0.3", "")
	_, err = oracle.HostLocal(dir)
	wantError(t, "empty file", err, []string{"10.0.0.3"})
	got, empty, err := oracle.HostLocalAfterKill(dir)
	if err != nil || len(empty) != 1 || !strings.HasSuffix(empty[0], "/10.0.0.3") {
		t.Errorf("got the empty files %q, %v; want that of 10.0.0.3", empty, err)
	}
	if err := oracle.Compare(got, want); err != nil {
		t.Error(err)
	}
}

func write(t *testing.T, dir, name, data string) {
	t.Helper()
	network := filepath.Join(dir, "pods")
	if err := errors.Join(os.MkdirAll(network, 0o700), os.WriteFile(filepath.Join(network, name), []byte(data), 0o600)); err != nil {
		t.Fatal(err)
	}
}
