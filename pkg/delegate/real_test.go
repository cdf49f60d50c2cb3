package delegate

import (
	"encoding/json"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/pkg/delegate/call"
	"github.com/delegated-ipam/delegated-ipam/pkg/delegate/profile"
)

// realPlugins names the folder that holds the real host-local, static and dhcp.
const realPlugins = "DELEGATED_IPAM_TEST_PLUGINS"

// oldPlugins names the folder that holds host-local of plugins v1.4.0, which
// knows nothing above CNI 1.0.0.
const oldPlugins = "DELEGATED_IPAM_TEST_OLD_PLUGINS"

// realBench is a runner for a real plugin; scripts is where it keeps its state.
func realBench(t *testing.T, ipam, capabilities string, change ...func(*Options)) *bench {
	t.Helper()
	return benchOf(t, realPlugins, ipam, capabilities, change...)
}

// benchOf is a runner for the plugins in the folder that a variable names.
func benchOf(t *testing.T, variable, ipam, capabilities string, change ...func(*Options)) *bench {
	t.Helper()
	dir := os.Getenv(variable)
	if dir == "" {
		t.Skipf("%s is not set; it names a folder of real plugins (make plugins)", variable)
	}
	profiles, err := profile.Load()
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{t: t, bin: dir, scripts: t.TempDir(), profiles: profiles}
	b.opts = Options{BinDirs: []string{dir}, LockFile: filepath.Join(b.scripts, "calls.lock"), Profiles: b.load}
	for _, f := range change {
		f(&b.opts)
	}
	if b.runner, err = New(b.opts); err != nil {
		t.Fatal(err)
	}
	b.network = call.Network{Name: "net", CNIVersion: "0.3.1", PluginConfig: json.RawMessage(
		`{"type":"cilium-cni","capabilities":` + capabilities + `,"ipam":` + strings.ReplaceAll(ipam, "DIR", b.scripts) + `}`)}
	return b
}

// files returns the addresses that the real host-local keeps for the network,
// by its own folder.
func (b *bench) files() []string {
	b.t.Helper()
	entries, err := os.ReadDir(filepath.Join(b.scripts, "net"))
	if err != nil {
		b.t.Fatal(err)
	}
	var held []string
	for _, e := range entries {
		if _, err := netip.ParseAddr(e.Name()); err == nil {
			held = append(held, e.Name())
		}
	}
	return held
}

// holdsFiles checks the addresses in the real host-local's folder.
func (b *bench) holdsFiles(want ...string) {
	b.t.Helper()
	if got := b.files(); !slices.Equal(got, want) {
		b.t.Errorf("the plugin's folder holds %v, want %v", got, want)
	}
}

const dualStack = `{"type":"host-local","dataDir":"DIR","ranges":[[{"subnet":"10.1.0.0/24"}],[{"subnet":"fd00::/120"}]]}`

func TestTheRealHostLocalServesEveryVerb(t *testing.T) {
	b := realBench(t, dualStack, `{}`)
	target := b.call("id")
	if target.Invocation.CNIVersion != "1.1.0" {
		t.Errorf("got CNI version %s, want 1.1.0", target.Invocation.CNIVersion)
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
	if !call.IsLost(target.Invocation, err) {
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
			target.Invocation.Profile.Requests = []profile.Request{c.honoured}
			target.Requested = asked(addrs(c.ask...)...)
			got, err := b.runner.Add(t.Context(), target)
			if err != nil {
				t.Fatal(err)
			}
			for _, ip := range addrs(c.ask...) {
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

func TestTheRealHostLocalServesItsRanges(t *testing.T) {
	for name, c := range map[string]struct{ ranges, want string }{
		"IPv4 alone":                         {`[[{"subnet":"10.1.0.0/24"}]]`, "10.1.0.2/24 via 10.1.0.1"},
		"IPv6 alone":                         {`[[{"subnet":"fd00::/120","gateway":"fe80::1"}]]`, "fd00::1/120 via fe80::1"},
		"both":                               {`[[{"subnet":"10.1.0.0/24"}],[{"subnet":"fd00::/120"}]]`, "10.1.0.2/24 via 10.1.0.1, fd00::2/120 via fd00::1"},
		"the second where the first is full": {`[[{"subnet":"10.1.0.0/24","rangeStart":"10.1.0.1","rangeEnd":"10.1.0.1"},{"subnet":"10.2.0.0/24","rangeStart":"10.2.0.9"}]]`, "10.2.0.9/24 via 10.2.0.1"},
	} {
		t.Run(name, func(t *testing.T) {
			b := realBench(t, `{"type":"host-local","dataDir":"DIR","ranges":`+c.ranges+`}`, `{}`)
			got, err := b.runner.Add(t.Context(), b.call("id"))
			if err != nil {
				t.Fatal(err)
			}
			if text := describe(got); text != c.want {
				t.Errorf("got %s, want %s", text, c.want)
			}
		})
	}
}

// Trap: host-local's errors are all code 999, so that only its words tell why.
func TestAnExhaustedPoolOfTheRealHostLocalIsSaidInItsOwnWords(t *testing.T) {
	b := realBench(t, `{"type":"host-local","dataDir":"DIR","ranges":[[{"subnet":"10.1.0.0/24","rangeStart":"10.1.0.7","rangeEnd":"10.1.0.7"}]]}`, `{}`)
	if err := b.run(call.VerbAdd, b.call("first")); err != nil {
		t.Fatal(err)
	}
	e := wantError(t, b.run(call.VerbAdd, b.call("second")), call.Refused, "no IP addresses available in range set")
	if e.Code != 999 {
		t.Errorf("got code %d, want 999, as all of its errors have", e.Code)
	}
	b.holdsFiles("10.1.0.7")
}

// BenchmarkAddAndDel measures what a plugin costs with the runner around it, without journal and engine.
func BenchmarkAddAndDel(b *testing.B) {
	dir := os.Getenv(realPlugins)
	if dir == "" {
		b.Skipf("%s is not set; it names a folder with the real host-local", realPlugins)
	}
	data := b.TempDir()
	r, err := New(Options{BinDirs: []string{dir}, LockFile: filepath.Join(data, "calls.lock"), Profiles: embeddedProfiles})
	if err != nil {
		b.Fatal(err)
	}
	c, err := r.NewInvocation(b.Context(), call.Network{
		Name:         "net",
		PluginConfig: json.RawMessage(`{"ipam":` + strings.ReplaceAll(dualStack, "DIR", data) + `}`),
	}, "id", "owner")
	if err != nil {
		b.Fatal(err)
	}
	target := call.Call{ContainerID: "id", Invocation: c}
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
