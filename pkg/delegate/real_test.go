package delegate

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/pkg/delegate/call"
	"github.com/delegated-ipam/delegated-ipam/pkg/delegate/profile"
)

// realPlugins names the folder that holds the real host-local and static.
const realPlugins = "DELEGATED_IPAM_TEST_PLUGINS"

// realBench is a runner for a real plugin; scripts is where it keeps its state.
func realBench(t *testing.T, ipam, capabilities string) *bench {
	t.Helper()
	dir := os.Getenv(realPlugins)
	if dir == "" {
		t.Skipf("%s is not set; it names a folder with the real host-local and static", realPlugins)
	}
	profiles, err := profile.Load()
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{t: t, bin: dir, scripts: t.TempDir()}
	b.opts = Options{BinDirs: []string{dir}, LockFile: filepath.Join(b.scripts, "calls.lock"), Profiles: profiles}
	if b.runner, err = New(b.opts); err != nil {
		t.Fatal(err)
	}
	b.network = Network{Name: "net", CNIVersion: "0.3.1", PluginConfig: json.RawMessage(
		`{"type":"cilium-cni","capabilities":` + capabilities + `,"ipam":` + strings.ReplaceAll(ipam, "DIR", b.scripts) + `}`)}
	return b
}

const dualStack = `{"type":"host-local","dataDir":"DIR","ranges":[[{"subnet":"10.1.0.0/24"}],[{"subnet":"fd00::/120"}]]}`

func TestTheRealHostLocalServesEveryVerb(t *testing.T) {
	b := realBench(t, dualStack, `{}`)
	target := b.call("id")
	if target.Context.CNIVersion != "1.1.0" {
		t.Errorf("got CNI version %s, want 1.1.0", target.Context.CNIVersion)
	}
	got, err := b.runner.Add(t.Context(), target)
	if err != nil {
		t.Fatal(err)
	}
	if text := describe(got); text != "10.1.0.2/24 via 10.1.0.1, fd00::2/120 via fd00::1" {
		t.Errorf("got %s", text)
	}
	wantError(t, b.run(call.VerbAdd, target), call.Refused, "duplicate allocation is not allowed")
	target.PrevResult = got.Raw
	for _, verb := range []string{call.VerbCheck, call.VerbStatus, call.VerbDel, call.VerbDel} {
		if err := b.run(verb, target); err != nil {
			t.Errorf("%s: %v", verb, err)
		}
	}
	err = b.run(call.VerbCheck, target)
	wantError(t, err, call.Refused, "Failed to find address")
	if !call.Lost(target.Context, err) {
		t.Errorf("got not lost after a DEL: %v", err)
	}
}

func TestTheRealHostLocalGivesTheAddressesAskedFor(t *testing.T) {
	for name, c := range map[string]struct {
		honoured     profile.Request
		capabilities string
		ask          []string
	}{
		"by args.cni.ips":      {profile.RequestArgsCNI, `{}`, []string{"10.1.0.77", "fd00::77"}},
		"by runtimeConfig.ips": {profile.RequestRuntimeConfig, `{"ips":true}`, []string{"10.1.0.77", "fd00::77"}},
		"by CNI_ARGS":          {profile.RequestCNIArgs, `{}`, []string{"fd00::77"}},
	} {
		t.Run(name, func(t *testing.T) {
			b := realBench(t, dualStack, c.capabilities)
			target := b.call("id")
			target.Context.Profile.Requests = []profile.Request{c.honoured}
			target.Requested = addrs(c.ask...)
			got, err := b.runner.Add(t.Context(), target)
			if err != nil {
				t.Fatal(err)
			}
			for _, ip := range target.Requested {
				if !holds(got, ip) {
					t.Errorf("got %s, want %s", describe(got), ip)
				}
			}
			if err := b.runner.Del(t.Context(), target); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestTheRealStaticIsServedWithPrevResult(t *testing.T) {
	b := realBench(t, `{"type":"static","addresses":[{"address":"10.1.0.5/24","gateway":"10.1.0.1"},{"address":"fd00::5/64"}]}`, `{}`)
	target := b.call("id")
	got, err := b.runner.Add(t.Context(), target)
	if err != nil {
		t.Fatal(err)
	}
	if text := describe(got); text != "10.1.0.5/24 via 10.1.0.1, fd00::5/64" {
		t.Errorf("got %s", text)
	}
	wantError(t, b.run(call.VerbCheck, target), call.Refused, "prevResult")
	target.PrevResult = got.Raw
	if err := b.run(call.VerbCheck, target); err != nil {
		t.Error(err)
	}
}

func TestTheRealHostLocalInOurOwnNamespaceWouldLeak(t *testing.T) {
	b := realBench(t, dualStack, `{}`)
	target := b.call("id")
	// Without the refusal, to see that what the plugin answers is not taken for a plain no.
	b.runner.netns = nil
	target.Context.NetNS = "/proc/self/ns/net"
	wantError(t, b.run(call.VerbAdd, target), call.Unclear, "exit status 1, and what it printed is no CNI error")
}

// BenchmarkAddAndDel is what DESIGN.md section 8 measures by bare exec.
func BenchmarkAddAndDel(b *testing.B) {
	dir := os.Getenv(realPlugins)
	if dir == "" {
		b.Skipf("%s is not set; it names a folder with the real host-local", realPlugins)
	}
	profiles, err := profile.Load()
	if err != nil {
		b.Fatal(err)
	}
	data := b.TempDir()
	r, err := New(Options{BinDirs: []string{dir}, LockFile: filepath.Join(data, "calls.lock"), Profiles: profiles})
	if err != nil {
		b.Fatal(err)
	}
	c, err := r.Context(b.Context(), Network{
		Name:         "net",
		PluginConfig: json.RawMessage(`{"ipam":` + strings.ReplaceAll(dualStack, "DIR", data) + `}`),
	}, "id")
	if err != nil {
		b.Fatal(err)
	}
	target := call.Call{ContainerID: "id", Context: c}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := r.Add(b.Context(), target); err != nil {
			b.Fatal(err)
		}
		if err := r.Del(b.Context(), target); err != nil {
			b.Fatal(err)
		}
	}
}
