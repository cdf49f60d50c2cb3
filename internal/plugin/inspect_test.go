package plugin

import (
	"errors"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
)

func TestInspect(t *testing.T) {
	f := newFake(t)
	f.network = networkOf("net", `{"type":"cilium-cni","ipam":{"type":"host-local","dataDir":"/"}}`)
	got := f.runner.Inspect(f.network)
	if got.Profile.Type != "host-local" || got.StateDir != "/" || got.StateKey != "dataDir" || got.NetNS != DefaultNetNS || len(got.Missing) != 0 {
		t.Errorf("got %+v; want what the profile of host-local says", got)
	}
	f.network = networkOf("net", `{"type":"cilium-cni","ipam":{"type":"whereabouts","configuration_path":"/nowhere"}}`)
	check.Equal(t, "missing files", len(f.runner.Inspect(f.network).Missing), 1)
}

func TestLease(t *testing.T) {
	f, dir, ip := newFake(t), t.TempDir(), netip.MustParseAddr("10.0.0.2")
	of := func(ipam string) error {
		n := networkOf("net", `{"type":"cilium-cni","ipam":`+ipam+`}`)
		n.IPAMType = "host-local"
		if strings.Contains(ipam, "whereabouts") {
			n.IPAMType = "whereabouts"
		}
		found, err := f.runner.Lease(n, ip)
		if err == nil && (found.ContainerID != "a-pod" || found.File != filepath.Join(dir, "net", "10.0.0.2") || found.Written.IsZero()) {
			t.Errorf("got %+v", found)
		}
		return err
	}
	hostLocal := `{"type":"host-local","dataDir":"` + dir + `"}`
	check.Error(t, of(hostLocal), filepath.Join(dir, "net")+" does not exist")
	check.True(t, !errors.Is(of(hostLocal), fs.ErrNotExist), "a missing directory is taken for a missing lease")
	check.Must(t, os.Mkdir(filepath.Join(dir, "net"), 0o700))
	check.True(t, errors.Is(of(hostLocal), fs.ErrNotExist), "an address without a file has a lease")
	check.Must(t, os.WriteFile(filepath.Join(dir, "net", "10.0.0.2"), []byte("a-pod\r\neth0"), 0o600))
	check.NoError(t, of(hostLocal))
	check.Error(t, of(`{"type":"host-local","dataDir":"relative"}`), "expected an absolute path")
	check.Error(t, of(`{"type":"whereabouts"}`), "the leases of plugin whereabouts cannot be read")
}

func TestInspectUnknown(t *testing.T) {
	f := newFake(t)
	f.network.PluginConfig = []byte(`[]`)
	check.Equal(t, "profile", f.runner.Inspect(f.network).Profile.Type, "")
}

// A socket counts only while a process listens on it.
func TestMissingSocket(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "dhcp.sock")
	r := newFake(t).runner
	n := call.Network{IPAMType: "dhcp", PluginConfig: []byte(`{"ipam":{"type":"dhcp","daemonSocketPath":"` + socket + `"}}`)}
	missing := func() int { return len(r.Inspect(n).Missing) }
	if missing() != 1 {
		t.Error("a socket that does not exist is not missing")
	}
	check.Error(t, r.CheckSockets(n), "plugin dhcp needs the socket "+socket+" (ipam.daemonSocketPath names another), on which no process listens")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	if missing() != 0 {
		t.Error("a socket on which a process listens is missing")
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	_ = l.Close()
	if missing() != 1 {
		t.Error("a socket that a killed process has left is not missing")
	}
}
