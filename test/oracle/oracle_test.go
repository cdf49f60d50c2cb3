package oracle_test

import (
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
		"lost address":   {plugin: []oracle.Lease{a}, listed: []oracle.Lease{a, b}, want: []string{"only the sidecar's list has fd00::2"}},
		"another holder": {plugin: []oracle.Lease{a}, listed: []oracle.Lease{stolen}, want: []string{`only the plugin's store has 10.0.0.2 in network "pods" of container ID "a"`, `only the sidecar's list has 10.0.0.2 in network "pods" of container ID "b"`}},
		"address twice":  {plugin: []oracle.Lease{a}, listed: []oracle.Lease{a, stolen}, want: []string{"the sidecar's list has an address twice"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			err := oracle.Compare(tt.plugin, tt.listed)
			if len(tt.want) == 0 {
				if err != nil {
					t.Fatalf("got %v; want agreement", err)
				}
				return
			}
			if err == nil {
				t.Fatalf("got agreement; want an error with %q", tt.want)
			}
			for _, want := range tt.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("got %v; want it to contain %q", err, want)
				}
			}
		})
	}
}

func TestHostLocal(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "10.0.0.2", "a\r\neth0")
	write(t, dir, "fd00::2", "b\r\neth0")
	write(t, dir, "last_reserved_ip.0", "10.0.0.2")
	write(t, dir, "lock", "")

	got, err := oracle.HostLocal(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := oracle.Compare(got, []oracle.Lease{lease("10.0.0.2", "a"), lease("fd00::2", "b")}); err != nil {
		t.Error(err)
	}
}

func TestHostLocalWithoutDir(t *testing.T) {
	got, err := oracle.HostLocal(filepath.Join(t.TempDir(), "none"))
	if err != nil || len(got) != 0 {
		t.Errorf("got %v, %v; want no lease and no error", got, err)
	}
}

func TestHostLocalEmptyFile(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "10.0.0.2", "")
	if _, err := oracle.HostLocal(dir); err == nil || !strings.Contains(err.Error(), "10.0.0.2") {
		t.Errorf("got %v; want an error that names the file", err)
	}
	write(t, dir, "10.0.0.3", "a\r\neth0")
	leases, empty, err := oracle.HostLocalAfterKill(dir)
	if err != nil || len(empty) != 1 || !strings.HasSuffix(empty[0], "/10.0.0.2") {
		t.Errorf("got the empty files %q, %v; want that of 10.0.0.2", empty, err)
	}
	if err := oracle.Compare(leases, []oracle.Lease{lease("10.0.0.3", "a")}); err != nil {
		t.Error(err)
	}
}

func write(t *testing.T, dir, name, data string) {
	t.Helper()
	network := filepath.Join(dir, "pods")
	if err := os.MkdirAll(network, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(network, name), []byte(data), 0o600); err != nil {
		t.Fatal(err)
	}
}
