package plugin

import (
	"net/netip"
	"path/filepath"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/profile"
)

// wantRequestIn fails the test if the last call of a verb does not carry the request in these
// places.
func (f *fixture) wantRequestIn(verb, cniArgs, runtimeConfig, args string) {
	f.t.Helper()
	calls := f.calls(verb)
	if got := calls[len(calls)-1].Env["CNI_ARGS"]; got != cniArgs {
		f.t.Errorf("%s: got CNI_ARGS %q, want %q", verb, got, cniArgs)
	}
	if got := f.stdin(verb, "runtimeConfig"); got != runtimeConfig {
		f.t.Errorf("%s: got runtimeConfig %s, want %s", verb, got, runtimeConfig)
	}
	if got := f.stdin(verb, "args"); got != args {
		f.t.Errorf("%s: got args %s, want %s", verb, got, args)
	}
}

func TestRequestForm(t *testing.T) {
	for name, c := range map[string]struct {
		form    profile.RequestForm
		request string
		want    string
	}{
		"address":                 {profile.FormAddress, "10.1.0.7/24", "10.1.0.7"},
		"CIDR":                    {profile.FormCIDR, "10.1.0.7/24", "10.1.0.7/24"},
		"CIDR of IPv6":            {profile.FormCIDR, "fd00::7/120", "fd00::7/120"},
		"CIDR, subnet unknown":    {profile.FormCIDR, "10.1.0.7/32", "10.1.0.7/32"},
		"CIDR of a mapped 4-in-6": {profile.FormCIDR, "::ffff:10.1.0.7/120", "10.1.0.7/24"},
	} {
		ips := `{"ips":["` + c.want + `"]}`
		for convention, want := range map[profile.Request][3]string{
			profile.RequestCNIArgs:       {"IgnoreUnknown=1;IP=" + c.want, "", ""},
			profile.RequestRuntimeConfig: {"IgnoreUnknown=1", ips, ""},
			profile.RequestArgsCNI:       {"IgnoreUnknown=1", "", `{"cni":` + ips + `}`},
		} {
			t.Run(name+" by "+string(convention), func(t *testing.T) {
				f := newFake(t)
				f.setProfile(func(p *profile.Profile) { p.Requests, p.RequestForm = []profile.Request{convention}, c.form })
				target := f.call("id")
				target.Invocation.Capabilities = []string{call.CapabilityIPs}
				target.Requested = []netip.Prefix{netip.MustParsePrefix(c.request)}
				f.add(target)
				f.wantRequestIn(call.VerbAdd, want[0], want[1], want[2])
			})
		}
	}
}

func TestPodIdentity(t *testing.T) {
	const synthetic = "IgnoreUnknown=1;K8S_POD_NAMESPACE=delegated-ipam;K8S_POD_NAME=id;K8S_POD_INFRA_CONTAINER_ID=id"
	for name, c := range map[string]struct {
		identity profile.PodIdentity
		owner    string
		want     string
	}{
		"none":                       {profile.PodIdentityNone, "default/web-0", "IgnoreUnknown=1"},
		"synthetic":                  {profile.PodIdentitySynthetic, "default/web-0", synthetic},
		"given":                      {profile.PodIdentityGiven, "default/web-0", "IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=web-0;K8S_POD_INFRA_CONTAINER_ID=id"},
		"given, with dots":           {profile.PodIdentityGiven, "a-b/web.0", "IgnoreUnknown=1;K8S_POD_NAMESPACE=a-b;K8S_POD_NAME=web.0;K8S_POD_INFRA_CONTAINER_ID=id"},
		"given, owner not a pod":     {profile.PodIdentityGiven, "health", synthetic},
		"given, owner without name":  {profile.PodIdentityGiven, "default/", synthetic},
		"given, owner two slashes":   {profile.PodIdentityGiven, "a/b/c", synthetic},
		"given, owner adds a key":    {profile.PodIdentityGiven, "default/web;IP=10.1.0.7", synthetic},
		"given, owner in upper case": {profile.PodIdentityGiven, "Default/Web", synthetic},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake(t)
			f.setProfile(func(p *profile.Profile) { p.PodIdentity = c.identity })
			inv, err := f.runner.NewInvocation(t.Context(), f.network, "id", c.owner)
			if err != nil {
				t.Fatal(err)
			}
			target := call.Call{Invocation: inv}
			for _, verb := range []string{call.VerbAdd, call.VerbCheck, call.VerbDel} {
				f.must(target, verb)
				if got := f.calls(verb)[0].Env["CNI_ARGS"]; got != c.want {
					t.Errorf("%s: got CNI_ARGS %q, want %q", verb, got, c.want)
				}
			}
		})
	}
}

// The pod's sandbox is the container ID of the call, also one with a generation.
func TestSyntheticPod(t *testing.T) {
	f := newFake(t)
	f.setProfile(func(p *profile.Profile) { p.PodIdentity = profile.PodIdentitySynthetic })
	if f.invocation("a").Args == f.invocation("b").Args {
		t.Error("two container IDs have the same pod")
	}
	target := f.call("id")
	target.ContainerID = "id-g1"
	f.add(target)
	want := "IgnoreUnknown=1;K8S_POD_NAMESPACE=delegated-ipam;K8S_POD_NAME=id;K8S_POD_INFRA_CONTAINER_ID=id-g1"
	if got := f.calls(call.VerbAdd)[0].Env["CNI_ARGS"]; got != want {
		t.Errorf("got CNI_ARGS %q, want %q", got, want)
	}
}

func TestNamespace(t *testing.T) {
	given := filepath.Join(t.TempDir(), "netns")
	for name, c := range map[string]struct {
		namespace profile.Namespace
		option    string
		want      string // empty: an error
	}{
		"any":        {profile.NamespaceAny, "", DefaultNetNS},
		"any, path":  {profile.NamespaceAny, given, given},
		"link":       {profile.NamespaceLink, "", ""},
		"link, path": {profile.NamespaceLink, given, given},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake(t, func(o *Options) { o.NetNS = c.option })
			f.setProfile(func(p *profile.Profile) { p.Namespace = c.namespace })
			got, err := f.newInvocation("id")
			if c.want == "" {
				wantText(t, err, `"net"`, "eth0", "--cni-netns")
				return
			}
			if err != nil || got.NetNS != c.want {
				t.Errorf("got namespace %q (%v), want %q", got.NetNS, err, c.want)
			}
		})
	}
}

func TestUnsafePlugin(t *testing.T) {
	for name, c := range map[string]struct {
		dangers  []string
		accept   bool
		accepted bool
	}{
		"safe":             {nil, false, true},
		"unsafe":           {[]string{"it eats addresses", "it lies"}, false, false},
		"unsafe, accepted": {[]string{"it eats addresses", "it lies"}, true, true},
		"safe, accepted":   {nil, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake(t, func(o *Options) { o.AcceptUnsafe = c.accept })
			f.setProfile(func(p *profile.Profile) { p.Dangers = c.dangers })
			_, err := f.newInvocation("id")
			if !c.accepted {
				wantText(t, err, "(1) it eats addresses; (2) it lies", "--accept-unsafe-plugin", fakeType)
			} else if err != nil {
				t.Error(err)
			}
		})
	}
}

func TestLost(t *testing.T) {
	for name, c := range map[string]struct {
		lost profile.Lost
		want bool
	}{
		"code and message":     {profile.Lost{Codes: []uint{999}, Message: "Failed to find"}, true},
		"another code":         {profile.Lost{Codes: []uint{998}, Message: "Failed to find"}, false},
		"another message":      {profile.Lost{Codes: []uint{999}, Message: "not found"}, false},
		"any code":             {profile.Lost{Message: "Failed to find"}, true},
		"code alone":           {profile.Lost{Codes: []uint{999}}, false},
		"nothing is described": {profile.Lost{}, false},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake(t)
			f.setProfile(func(p *profile.Profile) { p.Lost = c.lost })
			target := f.call("id")
			err := f.run(call.VerbCheck, target)
			wantError(t, err, call.Refused, "Failed to find address")
			if got := call.IsLost(target.Invocation, err); got != c.want {
				t.Errorf("got lost %v, want %v", got, c.want)
			}
		})
	}
}
