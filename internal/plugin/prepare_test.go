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

func TestRequest(t *testing.T) {
	all := []profile.Request{profile.RequestCNIArgs, profile.RequestRuntimeConfig, profile.RequestArgsCNI}
	const one = "10.1.0.7/24 via 10.1.0.1, fd00::2/120 via fd00::1"
	const two = "10.1.0.7/24 via 10.1.0.1, fd00::7/120 via fd00::1"
	for name, c := range map[string]struct {
		capabilities string
		ips          []string
		want         string
		sent         sentRequest
	}{
		"none":             {`{"ips":true}`, nil, firstIPs, sentRequest{cniArgs: "IgnoreUnknown=1"}},
		"one by CNI_ARGS":  {`{"ips":true}`, []string{"10.1.0.7"}, one, sentRequest{cniArgs: "IgnoreUnknown=1;IP=10.1.0.7"}},
		"mapped 4-in-6":    {`{}`, []string{"::ffff:10.1.0.7"}, one, sentRequest{cniArgs: "IgnoreUnknown=1;IP=10.1.0.7"}},
		"by runtimeConfig": {`{"ips":true}`, []string{"10.1.0.7", "fd00::7"}, two, sentRequest{"IgnoreUnknown=1", `{"ips":["10.1.0.7","fd00::7"]}`, ""}},
		"by args.cni":      {`{"ips":false}`, []string{"10.1.0.7", "fd00::7"}, two, sentRequest{"IgnoreUnknown=1", "", `{"cni":{"ips":["10.1.0.7","fd00::7"]}}`}},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake(t)
			f.setProfile(func(p *profile.Profile) { p.Requests = all })
			f.configure(`{"type":"scripted",`+twoRanges+`}`, c.capabilities)
			target := f.call("id")
			target.Requested = request(c.ips...)
			target.PrevResult = f.wantAdd(target, c.want).Raw
			f.must(target, call.VerbCheck, call.VerbDel)
			for _, verb := range []string{call.VerbAdd, call.VerbCheck, call.VerbDel} {
				f.wantSent(verb, c.sent)
			}
		})
	}
}

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
	f.wantSent(call.VerbAdd, sentRequest{"IgnoreUnknown=1", `{"io.kubernetes.cri.pod-annotations":{"a":"b"},` + both, ""})
	f.wantSent(call.VerbDel, sentRequest{"IgnoreUnknown=1", "{" + both, ""})
}

// sentRequest are the places of a call that can have a request.
type sentRequest struct{ cniArgs, runtimeConfig, args string }

// wantSent fails the test if the last call of a verb does not have the request in these places.
func (f *fixture) wantSent(verb string, want sentRequest) {
	f.t.Helper()
	got := sentRequest{f.lastCall(verb).Env["CNI_ARGS"], f.stdin(verb, "runtimeConfig"), f.stdin(verb, "args")}
	if got != want {
		f.t.Errorf("%s: got %+v, want %+v", verb, got, want)
	}
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

func TestRequestNotPossible(t *testing.T) {
	f := newFake(t)
	target := f.call("id")
	target.Invocation.Profile.Requests = []profile.Request{profile.RequestCNIArgs}
	target.Requested = request("10.1.0.7", "fd00::7")
	wantError(t, f.run(call.VerbAdd, target), call.NotStarted, "10.1.0.7")
	f.must(target, call.VerbDel)
}

func TestRequestKeepsArgs(t *testing.T) {
	f := newFake(t)
	f.network = networkOf("net", `{"args":{"cni":{"labels":[1]},"mine":2},"ipam":{"type":"scripted","subnet":"10.1.0.0/24"}}`)
	target := f.call("id")
	target.Requested = request("10.1.0.7")
	f.must(target, call.VerbAdd)
	f.wantSent(call.VerbAdd, sentRequest{"IgnoreUnknown=1", "", `{"cni":{"ips":["10.1.0.7"],"labels":[1]},"mine":2}`})
}

func TestPrevResult(t *testing.T) {
	for name, c := range map[string]struct {
		versions string
		verb     string
		prev     string
		want     string
	}{
		"CHECK":           {`["1.1.0"]`, call.VerbCheck, goodResult, goodResult},
		"DEL":             {`["1.1.0"]`, call.VerbDel, goodResult, goodResult},
		"not ADD":         {`["1.1.0"]`, call.VerbAdd, goodResult, ""},
		"DEL without one": {`["1.1.0"]`, call.VerbDel, "", ""},
		"not below 0.4.0": {`["0.3.1"]`, call.VerbDel, goodResult, ""},
		"DEL, broken":     {`["1.1.0"]`, call.VerbDel, `{"cniVersion":"1.1.0","routes":[{"dst":"<nil>"}]}`, ""},
		"another version": {
			`["0.4.0"]`, call.VerbDel, goodResult,
			`{"cniVersion":"0.4.0","ips":[{"version":"4","address":"10.1.0.9/24","gateway":"10.1.0.1"}],"dns":{}}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake(t)
			f.script(call.VerbVersion, `{"versions":`+c.versions+`}`)
			target := f.call("id")
			f.script(call.VerbCheck, `{"stdout":" "}`)
			if c.prev != "" {
				target.PrevResult = json.RawMessage(c.prev)
			}
			f.must(target, c.verb)
			if got := f.stdin(c.verb, "prevResult"); got != c.want {
				t.Errorf("got prevResult %s, want %s", got, c.want)
			}
		})
	}
}

//evidence:operate/security a plugin type or a record that names another path
func TestBrokenRecord(t *testing.T) {
	for name, change := range map[string]func(*call.Call){
		"prevResult not a result":          func(c *call.Call) { c.PrevResult = json.RawMessage(`[]`) },
		"prevResult with an empty address": func(c *call.Call) { c.PrevResult = json.RawMessage(`{"cniVersion":"0.4.0","ips":[null]}`) },
		"prevResult of unknown version":    func(c *call.Call) { c.PrevResult = json.RawMessage(`{"cniVersion":"9.9.9"}`) },
		"configuration not an object": func(c *call.Call) {
			c.Invocation.Config, c.PrevResult = json.RawMessage(`[]`), json.RawMessage(goodResult)
		},
		"relative namespace": func(c *call.Call) { c.Invocation.NetNS = "netns" },
		"our own namespace":  func(c *call.Call) { c.Invocation.NetNS = "/proc/self/ns/net" },
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake(t)
			target := f.call("id")
			change(&target)
			wantError(t, f.run(call.VerbCheck, target), call.NotStarted, "")
			f.wantCalls(call.VerbCheck, 0)
		})
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
