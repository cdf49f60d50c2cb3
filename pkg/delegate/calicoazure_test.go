package delegate

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/pkg/delegate/call"
	"github.com/delegated-ipam/delegated-ipam/pkg/delegate/profile"
)

// Trap: calico's second ADD is a second address under the same handle, so that a DEL, which frees
// both, comes before each.
func TestCalicoRepeatedAdd(t *testing.T) {
	f := imitate(t, "calico-ipam")
	target := f.call("id")
	f.wantAdd(target, firstIPs)
	f.wantAdd(target, secondIPs)
	if got := target.Invocation.Profile.RepeatedAdd; got != profile.RepeatedAddAnotherAddress {
		t.Errorf("by the profile a repeated ADD is %q, so that no DEL comes before it", got)
	}
	f.must(target, call.VerbDel)
	f.wantHeld()
}

// Trap: calico's CHECK always succeeds, also for what was never held.
func TestCalicoCheck(t *testing.T) {
	f := imitate(t, "calico-ipam")
	target := f.call("never-added")
	f.must(target, call.VerbCheck)
	if got := target.Invocation.Profile; got.CheckProves != profile.ProvesNothing || got.VerifyBy == profile.VerifyCheck {
		t.Errorf("by the profile CHECK proves %q, and it verifies by %q", got.CheckProves, got.VerifyBy)
	}
}

func TestCalicoRequest(t *testing.T) {
	f := imitate(t, "calico-ipam")
	target := f.call("id")
	target.Requested = request("10.1.0.77")
	f.wantAdd(target, "10.1.0.77/24 via 10.1.0.1, fd00::2/120 via fd00::1")
	// No pod is named: calico's GC frees what names an unknown one.
	f.wantRequestIn(call.VerbAdd, "IgnoreUnknown=1;IP=10.1.0.77", "", "")
	target.ContainerID, target.Requested = "another", request("10.1.0.78", "fd00::78")
	wantError(t, f.run(call.VerbAdd, target), call.NotStarted, "10.1.0.78")
}

// Trap: calico knows network and container ID, not the interface, so that two attachments of one ID
// would free each other's.
func TestCalicoKey(t *testing.T) {
	f := imitate(t, "calico-ipam")
	target := f.call("id")
	f.add(target)
	elsewhere := target
	f.network.Name = "another"
	elsewhere.Invocation.Config = f.invocation("id").Config
	f.must(elsewhere, call.VerbDel)
	f.wantHeld("10.1.0.2", "fd00::2")
	target.Invocation.IfName = "eth1"
	f.must(target, call.VerbDel)
	f.wantHeld()
}

// Trap: its GC frees what names an unknown pod, and keeps what names none.
func TestCalicoGC(t *testing.T) {
	for name, c := range map[string]struct {
		args string
		kept []string
	}{
		"no pod, as in our invocations": {"", []string{"10.1.0.2", "fd00::2"}},
		"a live pod":                    {";K8S_POD_NAMESPACE=default;K8S_POD_NAME=web", []string{"10.1.0.2", "fd00::2"}},
		"an unknown pod":                {";K8S_POD_NAMESPACE=delegated-ipam;K8S_POD_NAME=id", nil},
	} {
		t.Run(name, func(t *testing.T) {
			f := imitate(t, "calico-ipam")
			target := f.call("id")
			target.Invocation.Args += c.args
			f.add(target)
			f.reconcile(target, "default/web\n")
			f.wantHeld(c.kept...)
		})
	}
}

// Trap: calico and azure have no STATUS; both were written before CNI 1.1.0.
func TestCalicoAndAzureVersion(t *testing.T) {
	for _, pluginType := range []string{"calico-ipam", "azure-ipam"} {
		t.Run(pluginType, func(t *testing.T) {
			f := imitate(t, pluginType)
			target := f.call("id")
			if target.Invocation.CNIVersion != "1.0.0" || target.Invocation.HasStatus() {
				t.Errorf("got CNI version %s with STATUS %t, want 1.0.0 without", target.Invocation.CNIVersion, target.Invocation.HasStatus())
			}
			f.add(target)
			for _, verb := range []string{call.VerbStatus, "GC"} {
				if stdout, exit := f.byHand(verb, target, f.gcConfig(target, `[]`)); exit == 0 {
					t.Errorf("%s succeeded: %s", verb, stdout)
				}
			}
			f.wantHeld("10.1.0.2", "fd00::2")
		})
	}
}

// Trap: without a pod's name azure allocates nothing, so one is always sent: the owner's, or a
// synthetic one.
func TestAzurePod(t *testing.T) {
	for name, c := range map[string]struct{ owner, pod string }{
		"pod":       {"kube-system/web-0", "K8S_POD_NAMESPACE=kube-system;K8S_POD_NAME=web-0"},
		"not a pod": {"health", "K8S_POD_NAMESPACE=delegated-ipam;K8S_POD_NAME=id"},
		"no name":   {"", "K8S_POD_NAMESPACE=delegated-ipam;K8S_POD_NAME=id"},
	} {
		t.Run(name, func(t *testing.T) {
			f := imitate(t, "azure-ipam")
			inv, err := f.runner.NewInvocation(t.Context(), f.network, "id", c.owner)
			if err != nil {
				t.Fatal(err)
			}
			target := call.Call{ContainerID: "id", Invocation: inv}
			nameless := target
			nameless.Invocation.Profile.PodIdentity, nameless.Invocation.Args = profile.PodIdentityNone, "IgnoreUnknown=1"
			wantError(t, f.run(call.VerbAdd, nameless), call.Refused, "K8S_POD_NAME")
			f.wantHeld()
			f.add(target)
			if got := f.calls(call.VerbAdd)[1].Env["CNI_ARGS"]; !strings.Contains(got, c.pod) {
				t.Errorf("got CNI_ARGS %q, want %s", got, c.pod)
			}
		})
	}
}

// Trap: azure honours no request for an address, and returns another one without an error.
func TestAzureRequest(t *testing.T) {
	f := imitate(t, "azure-ipam")
	target := f.call("id")
	for _, convention := range []profile.Request{profile.RequestCNIArgs, profile.RequestArgsCNI, profile.RequestRuntimeConfig} {
		f.wantRequestIgnored(target, convention, firstIPs)
		f.must(target, call.VerbDel)
	}
}

// Trap: azure's CHECK always succeeds, so that a held ID is verified by ADD, which returns the same.
func TestAzureRepeatedAdd(t *testing.T) {
	f := imitate(t, "azure-ipam")
	target := f.call("id")
	f.wantAdd(target, firstIPs)
	f.wantAdd(target, firstIPs)
	f.must(f.call("never-added"), call.VerbCheck)
	if got := target.Invocation.Profile; got.VerifyBy != profile.VerifyAdd || got.RepeatedAdd != profile.RepeatedAddSameAnswer {
		t.Errorf("the profile verifies by %q, with a repeated ADD that is %q, want ADD and the same answer", got.VerifyBy, got.RepeatedAdd)
	}
}

// Trap: azure knows the container ID alone, so that two attachments of one ID would have one address.
func TestAzureKey(t *testing.T) {
	f := imitate(t, "azure-ipam")
	target := f.call("id")
	f.add(target)
	target.Invocation.IfName = "eth1"
	f.wantAdd(target, firstIPs)
}

// Trap: a DEL queued while the daemon was down frees the live address of a new ADD with the same ID.
// That is why the ID gets a generation after a DEL.
func TestAzureQueuedDel(t *testing.T) {
	for name, c := range map[string]struct {
		id   string
		want []string
	}{
		"the same ID loses it":             {"id", nil},
		"an ID with a generation keeps it": {"id-g1", []string{"10.1.0.3", "fd00::3"}},
	} {
		t.Run(name, func(t *testing.T) {
			f := imitate(t, "azure-ipam")
			target := f.call("id")
			f.add(target)
			f.write("daemon-down", "")
			f.must(target, call.VerbDel) // reports success
			f.wantHeld("10.1.0.2", "fd00::2")
			if err := os.Remove(filepath.Join(f.dir, "daemon-down")); err != nil {
				t.Fatal(err)
			}
			target.ContainerID = c.id
			f.add(target)
			f.wantHeld(c.want...)
			if got := target.Invocation.Profile; !got.SingleUseIDs() {
				t.Errorf("by the profile DEL is %q, after which an ID is used again", got.Del)
			}
		})
	}
}
