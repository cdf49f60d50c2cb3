package plugin

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/profile"
	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
)

// The pod's sandbox is the container ID of the call, also one with a generation.
func TestPodIdentity(t *testing.T) {
	for identity, want := range map[profile.PodIdentity]string{
		profile.PodIdentityNone:      "IgnoreUnknown=1",
		profile.PodIdentitySynthetic: "IgnoreUnknown=1;K8S_POD_NAMESPACE=delegated-ipam;K8S_POD_NAME=id;K8S_POD_INFRA_CONTAINER_ID=id-g1",
		profile.PodIdentityGiven:     "IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=web-0;K8S_POD_INFRA_CONTAINER_ID=id-g1",
	} {
		t.Run(string(identity), func(t *testing.T) {
			f := newFake(t)
			f.setProfile(func(p *profile.Profile) { p.PodIdentity = identity })
			inv, err := f.runner.NewInvocation(t.Context(), f.network, "id", "default/web-0")
			check.Must(t, err)
			inv.ContainerID = "id-g1"
			for _, verb := range []string{call.VerbAdd, call.VerbCheck, call.VerbDel} {
				f.must(call.Call{Invocation: inv}, verb)
				if got := f.lastCall(verb).Env["CNI_ARGS"]; got != want {
					t.Errorf("%s: got CNI_ARGS %q, want %q", verb, got, want)
				}
			}
		})
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

// Trap: whereabouts' reconciler frees what no live pod has, and nothing notices: the operator has to
// accept that. Its addresses are still released after that is withdrawn.
func TestUnsafePlugin(t *testing.T) {
	f := imitate(t, "whereabouts")
	_, err := f.newInvocation("id")
	dangers := f.profiles["whereabouts"].Dangers
	wantText(t, err, append([]string{`"net"`, "whereabouts", "--accept-unsafe-plugin"}, dangers...)...)
	if len(dangers) < 2 {
		t.Errorf("the profile names %q; want every danger", dangers)
	}
	if _, err := os.Stat(filepath.Join(f.dir, "calls.log")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the plugin was run (%v), want not even VERSION", err)
	}
	f.start(func(o *Options) { o.AcceptUnsafe = true })
	target := f.call("id")
	f.wantAdd(target, firstIPs)
	f.start(func(o *Options) { o.AcceptUnsafe = false })
	f.must(target, call.VerbDel)
	f.wantHeld()
}

// Trap: whereabouts' DEL drops every error after 60 s; one that is terminated before counts as failed.
func TestTimeoutOfPlugin(t *testing.T) {
	f := imitate(t, "whereabouts", func(o *Options) { o.AcceptUnsafe = true })
	target := f.call("id")
	const givesUp = time.Minute
	f.start(func(o *Options) { o.Timeout = givesUp })
	_, err := f.newInvocation("another")
	wantText(t, err, "--plugin-timeout is 1m0s", "expected less than 1m0s")
	wantError(t, f.run(call.VerbDel, target), call.NotStarted, "--plugin-timeout is 1m0s")
	f.start(func(o *Options) { o.Timeout = givesUp - 1 })
	f.must(target, call.VerbDel)
}

// Trap: with a network name that is not a DNS label each ADD of calico hangs for 90 s. No plugin is run
// for one.
func TestNetworkName(t *testing.T) {
	f := imitate(t, "calico-ipam")
	f.network.Name = "Cal_Net"
	_, err := f.newInvocation("id")
	wantText(t, err, `"Cal_Net"`, "calico-ipam", "expected a DNS label")
}
