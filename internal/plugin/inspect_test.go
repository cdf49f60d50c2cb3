package plugin

import (
	"errors"
	"net"
	"path/filepath"
	"slices"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
)

func TestInspect(t *testing.T) {
	f := newFake(t)
	f.script(call.VerbVersion, `{"versions":["0.4.0","1.0.0"]}`)
	got, want := f.runner.Inspect(t.Context(), f.network), f.invocation("id")
	if got.Err != nil || errors.Join(got.FindErr, got.VersionErr, got.StateErr, got.NetNSErr) != nil {
		t.Errorf("got %+v; want no error", got)
	}
	if got.Plugin != want.Plugin || got.Binary != want.Binary || got.CNIVersion != want.CNIVersion || got.NetNS != want.NetNS || got.Profile.Type != want.Profile.Type {
		t.Errorf("got %+v; want the values of the invocation: %+v", got, want)
	}
	if !slices.Equal(got.Versions, []string{"0.4.0", "1.0.0"}) {
		t.Errorf("the versions are %q; want the plugin's", got.Versions)
	}
	for _, verb := range []string{call.VerbAdd, call.VerbDel, call.VerbCheck, call.VerbStatus} {
		f.wantCalls(verb, 0)
	}
}

// A step that fails hides no other.
func TestInspectFailedStep(t *testing.T) {
	f := newFake(t, func(o *Options) { o.InPod = true })
	f.network = networkOf("net", `{"type":"cilium-cni","ipam":{"type":"host-local","dataDir":"/"}}`)
	got := f.runner.Inspect(t.Context(), f.network)
	for field, err := range map[string]error{"FindErr": got.FindErr, "StateErr": got.StateErr, "Err": got.Err} {
		if err == nil {
			t.Errorf("%s is nil in %+v", field, got)
		}
	}
	if got.StateDir != "/" || got.StateKey != "dataDir" || got.NetNSErr != nil || got.NetNS == "" {
		t.Errorf("got %+v; want the directory and a namespace anyway", got)
	}
}

func TestInspectWithoutPlugin(t *testing.T) {
	f := newFake(t)
	for _, config := range []string{`{"type":"cilium-cni"}`, `[]`} {
		f.network = networkOf("net", config)
		if got := f.runner.Inspect(t.Context(), f.network); got.Err == nil || got.Plugin != "" || got.Binary != "" {
			t.Errorf("%s: got %+v; want only an error", config, got)
		}
	}
}

// A socket counts only while a process listens on it.
func TestMissingSocket(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "dhcp.sock")
	r := newFake(t).runner
	n := call.Network{IPAMType: "dhcp", PluginConfig: []byte(`{"ipam":{"type":"dhcp","daemonSocketPath":"` + socket + `"}}`)}
	missing := func() int {
		all, err := r.Missing(n)
		if err != nil {
			t.Fatal(err)
		}
		return len(all)
	}
	if missing() != 1 {
		t.Error("a socket that does not exist is not missing")
	}
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
