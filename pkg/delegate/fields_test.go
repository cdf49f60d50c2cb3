package delegate

import (
	"net/netip"
	"path/filepath"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/pkg/delegate/call"
	"github.com/delegated-ipam/delegated-ipam/pkg/delegate/profile"
)

// with changes the profile of the bench's plugin. The runner asks for the set each time.
func (b *bench) with(change func(*profile.Profile)) {
	b.t.Helper()
	p := b.profiles[pluginType]
	change(&p)
	b.profiles[pluginType] = p
}

func TestTheProfileSaysWhichConventionIsUsed(t *testing.T) {
	for convention, want := range map[profile.Request]struct{ args, runtimeConfig, cniArgs string }{
		profile.RequestCNIArgs:       {"IgnoreUnknown=1;IP=10.1.0.7", "", ""},
		profile.RequestRuntimeConfig: {"IgnoreUnknown=1", `{"ips":["10.1.0.7"]}`, ""},
		profile.RequestArgsCNI:       {"IgnoreUnknown=1", "", `{"cni":{"ips":["10.1.0.7"]}}`},
	} {
		t.Run(string(convention), func(t *testing.T) {
			b := newBench(t)
			b.with(func(p *profile.Profile) { p.Requests = []profile.Request{convention} })
			target := b.call("id")
			target.Invocation.Capabilities = []string{call.CapabilityIPs}
			target.Requested = asked(addrs("10.1.0.7")...)
			b.add(target)
			if got := b.calls(call.VerbAdd)[0].Env["CNI_ARGS"]; got != want.args {
				t.Errorf("got CNI_ARGS %q, want %q", got, want.args)
			}
			if got := b.stdin(call.VerbAdd, "runtimeConfig"); got != want.runtimeConfig {
				t.Errorf("got runtimeConfig %s, want %s", got, want.runtimeConfig)
			}
			if got := b.stdin(call.VerbAdd, "args"); got != want.cniArgs {
				t.Errorf("got args %s, want %s", got, want.cniArgs)
			}
		})
	}
}

func TestTheProfileSaysInWhichFormAnAddressIsAskedFor(t *testing.T) {
	for name, c := range map[string]struct {
		form profile.RequestForm
		ask  string
		want string
	}{
		"the bare address":                          {profile.FormAddress, "10.1.0.7/24", "10.1.0.7"},
		"CIDR notation":                             {profile.FormCIDR, "10.1.0.7/24", "10.1.0.7/24"},
		"CIDR notation of IPv6":                     {profile.FormCIDR, "fd00::7/120", "fd00::7/120"},
		"CIDR notation where no subnet is known":    {profile.FormCIDR, "10.1.0.7/32", "10.1.0.7/32"},
		"a 4-in-6 address as the one that it means": {profile.FormCIDR, "::ffff:10.1.0.7/120", "10.1.0.7/24"},
	} {
		t.Run(name, func(t *testing.T) {
			for convention, where := range map[profile.Request]string{
				profile.RequestCNIArgs: "", profile.RequestRuntimeConfig: "runtimeConfig", profile.RequestArgsCNI: "args",
			} {
				b := newBench(t)
				b.with(func(p *profile.Profile) { p.Requests, p.RequestForm = []profile.Request{convention}, c.form })
				target := b.call("id")
				target.Invocation.Capabilities = []string{call.CapabilityIPs}
				target.Requested = []netip.Prefix{netip.MustParsePrefix(c.ask)}
				b.add(target)
				got := b.calls(call.VerbAdd)[0].Env["CNI_ARGS"]
				want := "IgnoreUnknown=1;IP=" + c.want
				if where != "" {
					got, want = b.stdin(call.VerbAdd, where), `{"ips":["`+c.want+`"]}`
				}
				if where == "args" {
					want = `{"cni":` + want + `}`
				}
				if got != want {
					t.Errorf("%s: got %s, want %s", convention, got, want)
				}
			}
		})
	}
}

func TestTheProfileSaysWhichPodIsNamed(t *testing.T) {
	const synthetic = "IgnoreUnknown=1;K8S_POD_NAMESPACE=delegated-ipam;K8S_POD_NAME=id;K8S_POD_INFRA_CONTAINER_ID=id"
	for name, c := range map[string]struct {
		identity profile.PodIdentity
		owner    string
		want     string
	}{
		"none":                                  {profile.PodIdentityNone, "default/web-0", "IgnoreUnknown=1"},
		"a synthetic one, whoever the owner is": {profile.PodIdentitySynthetic, "default/web-0", synthetic},
		"the given one of an owner that is a pod":           {profile.PodIdentityGiven, "default/web-0", "IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=web-0;K8S_POD_INFRA_CONTAINER_ID=id"},
		"a given one with dots":                             {profile.PodIdentityGiven, "a-b/web.0", "IgnoreUnknown=1;K8S_POD_NAMESPACE=a-b;K8S_POD_NAME=web.0;K8S_POD_INFRA_CONTAINER_ID=id"},
		"a synthetic one for an owner that is no pod":       {profile.PodIdentityGiven, "health", synthetic},
		"a synthetic one for an owner without a name":       {profile.PodIdentityGiven, "default/", synthetic},
		"a synthetic one for an owner with two slashes":     {profile.PodIdentityGiven, "a/b/c", synthetic},
		"a synthetic one for an owner that would add a key": {profile.PodIdentityGiven, "default/web;IP=10.1.0.7", synthetic},
		"a synthetic one for an owner in capitals":          {profile.PodIdentityGiven, "Default/Web", synthetic},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.with(func(p *profile.Profile) { p.PodIdentity = c.identity })
			context, err := b.runner.NewInvocation(t.Context(), b.network, "id", c.owner)
			if err != nil {
				t.Fatal(err)
			}
			target := call.Call{ContainerID: "id", Invocation: context}
			for _, verb := range []string{call.VerbAdd, call.VerbCheck, call.VerbDel} {
				b.must(verb, target)
				if got := b.calls(verb)[0].Env["CNI_ARGS"]; got != c.want {
					t.Errorf("%s: got CNI_ARGS %q, want %q", verb, got, c.want)
				}
			}
		})
	}
}

func TestThePodsSandboxIsTheIDOfTheCallAlsoAfterAGeneration(t *testing.T) {
	b := newBench(t)
	b.with(func(p *profile.Profile) { p.PodIdentity = profile.PodIdentitySynthetic })
	target := b.call("id")
	target.ContainerID = "id-g1"
	b.add(target)
	want := "IgnoreUnknown=1;K8S_POD_NAMESPACE=delegated-ipam;K8S_POD_NAME=id;K8S_POD_INFRA_CONTAINER_ID=id-g1"
	if got := b.calls(call.VerbAdd)[0].Env["CNI_ARGS"]; got != want {
		t.Errorf("got CNI_ARGS %q, want %q", got, want)
	}
}

func TestTheProfileSaysInWhichNamespaceThePluginWorks(t *testing.T) {
	given := filepath.Join(t.TempDir(), "netns")
	for name, c := range map[string]struct {
		known profile.Namespace
		flag  string
		want  string
	}{
		"any: a path that does not exist":           {profile.NamespaceAny, "", DefaultNetNS},
		"any, but the flag names one":               {profile.NamespaceAny, given, given},
		"any, but the flag says ephemeral":          {profile.NamespaceAny, EphemeralNetNS, EphemeralNetNS},
		"ephemeral: one for each call":              {profile.NamespaceEphemeral, "", EphemeralNetNS},
		"ephemeral, but the flag names one":         {profile.NamespaceEphemeral, given, given},
		"a link: the one that the flag names":       {profile.NamespaceLink, given, given},
		"a link, and the flag names none":           {profile.NamespaceLink, "", ""},
		"a link, which no ephemeral one would have": {profile.NamespaceLink, EphemeralNetNS, ""},
	} {
		t.Run(name, func(t *testing.T) {
			if c.want == EphemeralNetNS {
				needEphemeral(t)
			}
			b := newBench(t, func(o *Options) { o.NetNS = c.flag })
			b.with(func(p *profile.Profile) { p.Namespace = c.known })
			got, err := b.runner.NewInvocation(t.Context(), b.network, "id", "owner")
			if c.want == "" {
				wantText(t, err, `"net"`, "eth0", "--cni-netns")
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got.NetNS != c.want {
				t.Errorf("got namespace %q, want %q", got.NetNS, c.want)
			}
		})
	}
}

func TestTheProfileSaysThatAPluginIsUnsafe(t *testing.T) {
	for name, c := range map[string]struct {
		unsafe   string
		accept   bool
		accepted bool
	}{
		"a safe one is used":                          {"", false, true},
		"an unsafe one is refused":                    {"it eats addresses", false, false},
		"an unsafe one that was accepted is used":     {"it eats addresses", true, true},
		"a safe one is used where unsafe ones may be": {"", true, true},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, func(o *Options) { o.AcceptUnsafe = c.accept })
			b.with(func(p *profile.Profile) { p.Unsafe = c.unsafe })
			_, err := b.runner.NewInvocation(t.Context(), b.network, "id", "owner")
			if !c.accepted {
				wantText(t, err, "it eats addresses", "--accept-unsafe-plugin", pluginType)
			} else if err != nil {
				t.Error(err)
			}
		})
	}
}

func TestTheProfileSaysWhichNoOfCheckMeansLost(t *testing.T) {
	for name, c := range map[string]struct {
		lost profile.Lost
		want bool
	}{
		"its code and words":    {profile.Lost{Codes: []uint{999}, Message: "Failed to find"}, true},
		"another code":          {profile.Lost{Codes: []uint{998}, Message: "Failed to find"}, false},
		"other words":           {profile.Lost{Codes: []uint{999}, Message: "it is gone"}, false},
		"every code from 100":   {profile.Lost{MinCode: 100}, true},
		"every code from 1000":  {profile.Lost{MinCode: 1000}, false},
		"nothing is recognised": {profile.Lost{}, false},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.with(func(p *profile.Profile) { p.Lost = c.lost })
			target := b.call("id")
			err := b.run(call.VerbCheck, target)
			wantError(t, err, call.Refused, "Failed to find address")
			if got := call.IsLost(target.Invocation, err); got != c.want {
				t.Errorf("got lost %v, want %v", got, c.want)
			}
		})
	}
}
