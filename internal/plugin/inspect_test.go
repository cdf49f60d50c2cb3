package plugin

import (
	"net"
	"path/filepath"
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
