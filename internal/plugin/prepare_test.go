package plugin

import (
	"encoding/json"
	"net/netip"
	"slices"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/profile"
	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
)

// The plugin gets a requested address with what the runtime has passed, and the rest of the configuration.
func TestRequestKeepsRuntimeConfig(t *testing.T) {
	f := newFake(t)
	f.setProfile(func(p *profile.Profile) { p.Requests = []profile.Request{profile.RequestRuntimeConfig} })
	f.configure(`{"type":"scripted",`+twoRanges+`}`, `{"ips":true,"mac":true}`)
	target := f.call("id")
	var err error
	target.Config, err = setKey(target.Config, json.RawMessage(`{"mac":"02:00:00:00:00:01"}`), call.KeyRuntimeConfig)
	check.Must(t, err)
	target.AddOnly = map[string]json.RawMessage{call.KeyPodAnnotations: json.RawMessage(`{"a":"b"}`)}
	target.Requested = request("10.1.0.7")
	f.wantAdd(target, "10.1.0.7/24 via 10.1.0.1, fd00::2/120 via fd00::1")
	f.must(target, call.VerbDel)
	const both = `"ips":["10.1.0.7"],"mac":"02:00:00:00:00:01"}`
	check.Equal(t, "runtimeConfig of ADD", f.stdin(call.VerbAdd, call.KeyRuntimeConfig), `{"io.kubernetes.cri.pod-annotations":{"a":"b"},`+both)
	check.Equal(t, "runtimeConfig of DEL", f.stdin(call.VerbDel, call.KeyRuntimeConfig), "{"+both)
}

func TestFormatIP(t *testing.T) {
	for name, c := range map[string]struct {
		form          profile.RequestForm
		request, want string
	}{
		"address":                 {profile.FormAddress, "10.1.0.7/24", "10.1.0.7"},
		"CIDR":                    {profile.FormCIDR, "10.1.0.7/24", "10.1.0.7/24"},
		"CIDR of IPv6":            {profile.FormCIDR, "fd00::7/120", "fd00::7/120"},
		"CIDR, subnet unknown":    {profile.FormCIDR, "10.1.0.7/32", "10.1.0.7/32"},
		"CIDR of a mapped 4-in-6": {profile.FormCIDR, "::ffff:10.1.0.7/120", "10.1.0.7/24"},
	} {
		if got := formatIP(profile.Profile{RequestForm: c.form}, netip.MustParsePrefix(c.request)); got != c.want {
			t.Errorf("%s: got %s, want %s", name, got, c.want)
		}
	}
}

// Trap: invoke.Delegate* reads CNI_* of the process, so that a plugin would see what the daemon was
// started with.
//
//evidence:operate/security it reads the daemon's environment
func TestPluginEnvironment(t *testing.T) {
	t.Setenv("CNI_NETNS", "/from/us")
	t.Setenv("CNI_STRAY", "1")
	t.Setenv("SECRET", "1")
	t.Setenv("WANTED", "yes")
	t.Setenv("PATH", "/usr/bin:/bin")
	f := newFake(t, func(o *Options) { o.Env = []string{"WANTED", "UNSET"} })
	target := f.call("id")
	for _, verb := range []string{call.VerbAdd, call.VerbCheck, call.VerbDel, call.VerbStatus} {
		f.must(target, verb)
		want := map[string]string{
			"CNI_COMMAND": verb, "CNI_CONTAINERID": "id", "CNI_NETNS": DefaultNetNS, "CNI_IFNAME": "eth0",
			"CNI_ARGS": "IgnoreUnknown=1", "CNI_PATH": f.bin, "PATH": "/usr/bin:/bin", "WANTED": "yes",
			"GOMAXPROCS": "1",
		}
		if verb == call.VerbStatus {
			delete(want, "CNI_CONTAINERID")
		}
		got := f.calls(verb)[0].Env
		for name, value := range want {
			if got[name] != value {
				t.Errorf("%s: got %s=%q, want %q", verb, name, got[name], value)
			}
			delete(got, name)
		}
		if len(got) > 0 {
			t.Errorf("%s: got also %v, want nothing", verb, got)
		}
	}
}

func TestCommonEnv(t *testing.T) {
	set := map[string]string{"A": "1", "PATH": "/bin", "GOMAXPROCS": "7"}
	for name, c := range map[string]struct {
		named []string
		env   map[string]string
		want  []string
	}{
		"named twice":                {[]string{"A", "PATH", "A"}, set, []string{"PATH=/bin", "A=1", "GOMAXPROCS=1"}},
		"GOMAXPROCS of the daemon":   {nil, map[string]string{"GOMAXPROCS": "7"}, []string{"GOMAXPROCS=1"}},
		"GOMAXPROCS named":           {[]string{"GOMAXPROCS"}, map[string]string{"GOMAXPROCS": "7"}, []string{"GOMAXPROCS=7"}},
		"GOMAXPROCS named and unset": {[]string{"GOMAXPROCS"}, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			lookup := func(name string) (string, bool) {
				value, ok := c.env[name]
				return value, ok
			}
			if got := commonEnv(c.named, lookup); !slices.Equal(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestInvalidOptions(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Options)
		want   string
	}{
		"no plugin directory":   {func(o *Options) { o.BinDirs = nil }, "--cni-bin-dir"},
		"a CNI variable":        {func(o *Options) { o.Env = []string{"CNI_ARGS"} }, "--plugin-env"},
		"a variable with value": {func(o *Options) { o.Env = []string{"A=b"} }, "--plugin-env"},
		"our own namespace":     {func(o *Options) { o.NetNS = "/proc/self/ns/net" }, "--cni-netns"},
	} {
		t.Run(name, func(t *testing.T) {
			o := newFake(t).opts
			c.change(&o)
			_, err := New(o)
			wantText(t, err, c.want)
		})
	}
}
