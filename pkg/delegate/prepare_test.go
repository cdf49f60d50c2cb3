package delegate

import (
	"encoding/json"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/pkg/delegate/call"
	"github.com/delegated-ipam/delegated-ipam/pkg/delegate/profile"
)

func addrs(texts ...string) []netip.Addr {
	var out []netip.Addr
	for _, text := range texts {
		out = append(out, netip.MustParseAddr(text))
	}
	return out
}

// asked are addresses as the engine asks for those of which it knows no subnet.
func asked(ips ...netip.Addr) []netip.Prefix {
	var out []netip.Prefix
	for _, ip := range ips {
		out = append(out, netip.PrefixFrom(ip, ip.BitLen()))
	}
	return out
}

func TestAddressesAreAskedForByTheFirstConventionThatCarriesThemAll(t *testing.T) {
	all := []profile.Request{profile.RequestCNIArgs, profile.RequestRuntimeConfig, profile.RequestArgsCNI}
	for name, c := range map[string]struct {
		honoured      []profile.Request
		capabilities  string
		ask           []netip.Addr
		args          string
		runtimeConfig string
		cniArgs       string
	}{
		"nothing asked":                             {all, `{"ips":true}`, nil, "IgnoreUnknown=1", "", ""},
		"one address by CNI_ARGS":                   {all, `{"ips":true}`, addrs("10.1.0.7"), "IgnoreUnknown=1;IP=10.1.0.7", "", ""},
		"two by runtimeConfig if it is declared":    {all, `{"ips":true}`, addrs("10.1.0.7", "fd00::7"), "IgnoreUnknown=1", `{"ips":["10.1.0.7","fd00::7"]}`, ""},
		"two by args if runtimeConfig is not":       {all, `{"ips":false}`, addrs("10.1.0.7", "fd00::7"), "IgnoreUnknown=1", "", `{"cni":{"ips":["10.1.0.7","fd00::7"]}}`},
		"a 4-in-6 address as the one that it means": {all, `{}`, addrs("::ffff:10.1.0.7"), "IgnoreUnknown=1;IP=10.1.0.7", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.with(func(p *profile.Profile) { p.Requests = c.honoured })
			b.network.PluginConfig = json.RawMessage(`{"capabilities":` + c.capabilities +
				`,"ipam":{"type":"scripted","ranges":[[{"subnet":"10.1.0.0/24"}],[{"subnet":"fd00::/120"}]]}}`)
			target := b.call("id")
			target.Requested = asked(c.ask...)
			got, err := b.runner.Add(t.Context(), target)
			if err != nil {
				t.Fatal(err)
			}
			for _, want := range c.ask {
				if !holds(got, want.Unmap()) {
					t.Errorf("got %v, want %s among them", got.Addresses, want)
				}
			}
			target.PrevResult = got.Raw
			for _, verb := range []string{call.VerbAdd, call.VerbCheck, call.VerbDel} {
				if verb != call.VerbAdd {
					if err := b.run(verb, target); err != nil {
						t.Fatal(err)
					}
				}
				if args := b.calls(verb)[0].Env["CNI_ARGS"]; args != c.args {
					t.Errorf("%s: got CNI_ARGS %q, want %q", verb, args, c.args)
				}
				if rc := b.stdin(verb, "runtimeConfig"); rc != c.runtimeConfig {
					t.Errorf("%s: got runtimeConfig %s, want %s", verb, rc, c.runtimeConfig)
				}
				if args := b.stdin(verb, "args"); args != c.cniArgs {
					t.Errorf("%s: got args %s, want %s", verb, args, c.cniArgs)
				}
			}
		})
	}
}

func holds(r call.Result, ip netip.Addr) bool {
	for _, a := range r.Addresses {
		if a.Addr() == ip {
			return true
		}
	}
	return false
}

func TestARequestThatNoConventionCarriesIsNotStarted(t *testing.T) {
	for name, c := range map[string]struct {
		honoured []profile.Request
		ask      []netip.Addr
	}{
		"the profile honours none":             {nil, addrs("10.1.0.7")},
		"two addresses by CNI_ARGS alone":      {[]profile.Request{profile.RequestCNIArgs}, addrs("10.1.0.7", "fd00::7")},
		"runtimeConfig without the capability": {[]profile.Request{profile.RequestRuntimeConfig}, addrs("10.1.0.7")},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			target := b.call("id")
			target.Invocation.Profile.Requests = c.honoured
			target.Requested = asked(c.ask...)
			wantError(t, b.run(call.VerbAdd, target), call.NotStarted, "10.1.0.7")
			if err := b.run(call.VerbDel, target); err != nil {
				t.Errorf("DEL: got %v, want it to run all the same", err)
			}
		})
	}
}

func TestAnExistingArgsObjectKeepsWhatItHas(t *testing.T) {
	b := newBench(t)
	b.network.PluginConfig = json.RawMessage(`{"args":{"cni":{"labels":[1]},"mine":2},"ipam":{"type":"scripted","subnet":"10.1.0.0/24"}}`)
	target := b.call("id")
	target.Requested = asked(addrs("10.1.0.7")...)
	if err := b.run(call.VerbAdd, target); err != nil {
		t.Fatal(err)
	}
	want := `{"cni":{"ips":["10.1.0.7"],"labels":[1]},"mine":2}`
	if got := b.stdin(call.VerbAdd, "args"); got != want {
		t.Errorf("got args %s, want %s", got, want)
	}
}

func TestPrevResultIsGivenToTheVerbsThatTakeIt(t *testing.T) {
	for name, c := range map[string]struct {
		versions string
		verb     string
		prev     string
		want     string
	}{
		"CHECK gets it":            {`["1.1.0"]`, call.VerbCheck, goodResult, goodResult},
		"DEL gets it":              {`["1.1.0"]`, call.VerbDel, goodResult, goodResult},
		"ADD does not":             {`["1.1.0"]`, call.VerbAdd, goodResult, ""},
		"DEL without one does":     {`["1.1.0"]`, call.VerbDel, "", ""},
		"DEL below 0.4.0 does not": {`["0.3.1"]`, call.VerbDel, goodResult, ""},
		"one of another version is converted": {
			`["0.4.0"]`, call.VerbDel, goodResult,
			`{"cniVersion":"0.4.0","ips":[{"version":"4","address":"10.1.0.9/24","gateway":"10.1.0.1"}],"dns":{}}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.script(call.VerbVersion, `{"versions":`+c.versions+`}`)
			target := b.call("id")
			b.script(call.VerbCheck, `{"stdout":" "}`)
			if c.prev != "" {
				target.PrevResult = json.RawMessage(c.prev)
			}
			if err := b.run(c.verb, target); err != nil {
				t.Fatal(err)
			}
			if got := b.stdin(c.verb, "prevResult"); got != c.want {
				t.Errorf("got prevResult %s, want %s", got, c.want)
			}
		})
	}
}

func TestARecordedContextThatIsBrokenIsNotStarted(t *testing.T) {
	for name, change := range map[string]func(*call.Call){
		"a prevResult that is no result":     func(c *call.Call) { c.PrevResult = json.RawMessage(`[]`) },
		"a prevResult with an empty address": func(c *call.Call) { c.PrevResult = json.RawMessage(`{"cniVersion":"0.4.0","ips":[null]}`) },
		"a prevResult of an unknown version": func(c *call.Call) { c.PrevResult = json.RawMessage(`{"cniVersion":"9.9.9"}`) },
		"a configuration that is no object": func(c *call.Call) {
			c.Invocation.Config, c.PrevResult = json.RawMessage(`[]`), json.RawMessage(goodResult)
		},
		"a namespace that is a relative path": func(c *call.Call) { c.Invocation.NetNS = "netns" },
		"a namespace that has become our own": func(c *call.Call) { c.Invocation.NetNS = "/proc/self/ns/net" },
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			target := b.call("id")
			change(&target)
			wantError(t, b.run(call.VerbCheck, target), call.NotStarted, "")
			if got := b.calls(call.VerbCheck); len(got) != 0 {
				t.Errorf("the plugin saw %d CHECKs, want none", len(got))
			}
		})
	}
}

func TestADelGoesWithoutAPrevResultThatIsBroken(t *testing.T) {
	b := newBench(t)
	target := b.call("id")
	target.PrevResult = json.RawMessage(`{"cniVersion":"1.1.0","routes":[{"dst":"<nil>"}]}`)
	if err := b.run(call.VerbDel, target); err != nil {
		t.Fatal(err)
	}
	if got := b.stdin(call.VerbDel, "prevResult"); got != "" {
		t.Errorf("got prevResult %s, want none", got)
	}
}

// Trap: invoke.Delegate* reads CNI_* of the process, so that a plugin would see what
// the sidecar was started with.
func TestThePluginSeesItsOwnEnvironmentAndNoMore(t *testing.T) {
	t.Setenv("CNI_NETNS", "/from/us")
	t.Setenv("CNI_STRAY", "1")
	t.Setenv("SECRET", "1")
	t.Setenv("WANTED", "yes")
	t.Setenv("PATH", "/usr/bin:/bin")
	b := newBench(t, func(o *Options) { o.Env = []string{"WANTED", "UNSET"} })
	target := b.call("id")
	for _, verb := range []string{call.VerbAdd, call.VerbCheck, call.VerbDel, call.VerbStatus} {
		if err := b.run(verb, target); err != nil {
			t.Fatal(err)
		}
		want := map[string]string{
			"CNI_COMMAND": verb, "CNI_CONTAINERID": "id", "CNI_NETNS": DefaultNetNS, "CNI_IFNAME": "eth0",
			"CNI_ARGS": "IgnoreUnknown=1", "CNI_PATH": b.bin, "PATH": "/usr/bin:/bin", "WANTED": "yes",
			"GOMAXPROCS": "1",
		}
		if verb == call.VerbStatus {
			delete(want, "CNI_CONTAINERID")
		}
		got := b.calls(verb)[0].Env
		for name, value := range want {
			if got[name] != value {
				t.Errorf("%s: got %s=%q, want %q", verb, name, got[name], value)
			}
			delete(got, name)
		}
		if len(got) > 0 {
			t.Errorf("%s: got besides %v, want nothing", verb, got)
		}
	}
}

func TestAVariableThatIsNamedTwiceIsGivenOnce(t *testing.T) {
	got := commonEnv([]string{"A", "PATH", "A"}, func(name string) (string, bool) { return "value of " + name, true })
	if want := []string{"PATH=value of PATH", "A=value of A", "GOMAXPROCS=1"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestHowManyProcessorsAPluginUsesIsOursUnlessTheOptionNamesIt(t *testing.T) {
	for name, c := range map[string]struct {
		named []string
		ours  map[string]string
		want  []string
	}{
		"the sidecar's own value is not the plugin's": {nil, map[string]string{"GOMAXPROCS": "7"}, []string{"GOMAXPROCS=1"}},
		"a value that is named is the plugin's too":   {[]string{"GOMAXPROCS"}, map[string]string{"GOMAXPROCS": "7"}, []string{"GOMAXPROCS=7"}},
		"named and not set, the plugin decides":       {[]string{"GOMAXPROCS"}, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			got := commonEnv(c.named, func(name string) (string, bool) {
				value, ok := c.ours[name]
				return value, ok
			})
			if !slices.Equal(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestStatusBelowItsVersionIsNotAsked(t *testing.T) {
	b := newBench(t)
	b.script(call.VerbVersion, `{"versions":["1.0.0"]}`)
	b.script(call.VerbStatus, `{"error":`+goodError+`}`)
	if err := b.runner.Status(t.Context(), b.context("id")); err != nil {
		t.Errorf("got %v, want nil", err)
	}
	if got := b.calls(call.VerbStatus); len(got) != 0 {
		t.Errorf("the plugin saw %d STATUS, want none", len(got))
	}
}

func TestOptionsThatCannotBeUsedAreRefused(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Options)
		text   string
	}{
		"no plugin folder":                     {func(o *Options) { o.BinDirs = nil }, "--cni-bin-dir"},
		"no lock file":                         {func(o *Options) { o.LockFile = "" }, "lock file"},
		"no profiles":                          {func(o *Options) { o.Profiles = nil }, "profile"},
		"a CNI variable of this process":       {func(o *Options) { o.Env = []string{"CNI_ARGS"} }, "--plugin-env"},
		"a variable with a value":              {func(o *Options) { o.Env = []string{"A=b"} }, "--plugin-env"},
		"a negative time limit":                {func(o *Options) { o.Timeout = -1 }, "--plugin-timeout"},
		"our own network namespace":            {func(o *Options) { o.NetNS = "/proc/self/ns/net" }, "--cni-netns"},
		"the namespace of process 1":           {func(o *Options) { o.NetNS = "/proc/1/ns/net" }, "--cni-netns"},
		"a namespace that is no absolute path": {func(o *Options) { o.NetNS = "netns" }, "--cni-netns"},
	} {
		t.Run(name, func(t *testing.T) {
			o := newBench(t).opts
			c.change(&o)
			if _, err := New(o); err == nil || !strings.Contains(err.Error(), c.text) {
				t.Errorf("got %v, want an error that names %s", err, c.text)
			}
		})
	}
}
