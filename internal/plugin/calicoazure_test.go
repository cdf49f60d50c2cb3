package plugin

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/profile"
)

// Trap: calico's second ADD is a second address under the same handle, so that a DEL, which frees
// both, comes before each.
func TestCalicoRepeatedAdd(t *testing.T) {
	f := imitate(t, "calico-ipam")
	target := f.call("id")
	f.wantAdd(target, "10.1.0.2/32, fd00::2/128")
	f.wantAdd(target, "10.1.0.3/32, fd00::3/128")
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

// Trap: calico returns the family of the request alone, and cannot return both.
func TestCalicoRequest(t *testing.T) {
	f := imitate(t, "calico-ipam")
	target := f.call("id")
	target.Requested = request("10.1.0.77")
	f.wantAdd(target, "10.1.0.77/32") // of the family of the request alone
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

// Trap: with a network name that is not a DNS label each ADD hangs for 90 s. No plugin is run for
// one.
func TestCalicoNetworkName(t *testing.T) {
	f := imitate(t, "calico-ipam")
	target := f.call("id")
	f.runner.opts.Timeout, f.runner.opts.Grace = time.Second, time.Millisecond
	config, err := withKeys(target.Invocation.Config, map[string]json.RawMessage{"name": json.RawMessage(`"Cal_Net"`)})
	if err != nil {
		t.Fatal(err)
	}
	target.Invocation.Config = config
	wantError(t, f.run(call.VerbAdd, target), call.Unknown, "did not end within 1s")
	f.network.Name = "Cal_Net"
	_, err = f.newInvocation("id")
	wantText(t, err, `"Cal_Net"`, "calico-ipam", "expected a DNS label")
}

// Trap: an address in its cooldown cannot be allocated, not even on request.
func TestCalicoCooldown(t *testing.T) {
	f := imitate(t, "calico-ipam")
	f.network.PluginConfig = json.RawMessage(strings.Replace(string(f.network.PluginConfig), `"ranges"`, `"cooldown":true,"ranges"`, 1))
	target := f.call("id")
	f.wantAdd(target, "10.1.0.2/32, fd00::2/128")
	f.must(target, call.VerbDel)
	target.Requested = request("10.1.0.2")
	wantError(t, f.run(call.VerbAdd, target), call.Refused, "10.1.0.2")
	target.Requested = nil
	f.wantAdd(target, "10.1.0.3/32, fd00::3/128")
}

// Trap: calico has no STATUS: it was written before CNI 1.1.0.
func TestCalicoVersion(t *testing.T) {
	f := imitate(t, "calico-ipam")
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
}

// Trap: azure accepts GC and STATUS and does nothing, also while its daemon is down, so that STATUS is
// not called for readiness.
func TestAzureGCAndStatus(t *testing.T) {
	f := imitate(t, "azure-ipam")
	target := f.call("id")
	if target.Invocation.CNIVersion != "1.1.0" || target.Invocation.HasStatus() {
		t.Errorf("got CNI version %s, and STATUS is called %t; want 1.1.0, and no call", target.Invocation.CNIVersion, target.Invocation.HasStatus())
	}
	f.add(target)
	f.write("daemon-down", "")
	if stdout := f.gc(target, `[]`); stdout != "" {
		t.Errorf("GC printed %s", stdout)
	}
	if stdout, exit := f.byHand(call.VerbStatus, target, target.Invocation.Config); exit != 0 || len(stdout) != 0 {
		t.Errorf("STATUS: exit status %d: %s; want it accepted without output", exit, stdout)
	}
	f.wantHeld("10.1.0.2", "fd00::2")
}

// Azure needs no pod. One is named because CNS can be configured to identify attachments by pod: the
// owner's, or a synthetic one.
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
			target := call.Call{Invocation: inv}
			f.add(target)
			if got := f.calls(call.VerbAdd)[0].Env["CNI_ARGS"]; !strings.Contains(got, c.pod) {
				t.Errorf("got CNI_ARGS %q, want %s", got, c.pod)
			}
			target.Invocation.Profile.PodIdentity, target.Invocation.Args = profile.PodIdentityNone, ""
			target.ContainerID = "nameless"
			f.wantAdd(target, secondIPs)
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

// Trap: a second ADD of azure returns the same address, and its CHECK always succeeds. Neither verifies
// a held address: an ADD that gets no response from the daemon releases what its ID holds.
func TestAzureFailedAdd(t *testing.T) {
	f := imitate(t, "azure-ipam")
	target := f.call("id")
	f.wantAdd(target, firstIPs)
	f.wantAdd(target, firstIPs)
	f.must(f.call("never-added"), call.VerbCheck)
	f.write("daemon-stalled", "")
	wantError(t, f.run(call.VerbAdd, target), call.Refused, "code 202")
	f.wantHeld()
	if got := target.Invocation.VerifyBy(); got != profile.VerifyNothing {
		t.Errorf("held addresses are verified by %q, want nothing", got)
	}
	target.Invocation.Profile.VerifyBy = profile.VerifyAdd // as in records of earlier builds
	if got := target.Invocation.VerifyBy(); got != profile.VerifyNothing {
		t.Errorf("held addresses of an old record are verified by %q, want nothing", got)
	}
}

// Trap: azure knows the container ID; an ADD of a held one with another interface fails, and releases
// what the ID holds.
func TestAzureKey(t *testing.T) {
	f := imitate(t, "azure-ipam")
	target := f.call("id")
	f.add(target)
	target.Invocation.IfName = "eth1"
	wantError(t, f.run(call.VerbAdd, target), call.Refused, "another interface")
	f.wantHeld()
}

// Trap: a DEL while the daemon is down fails unless the directory for queued ones exists.
func TestAzureQueueDir(t *testing.T) {
	f := imitate(t, "azure-ipam")
	target := f.call("id")
	f.add(target)
	f.write("daemon-down", "")
	if err := os.Remove(filepath.Join(f.dir, "queue")); err != nil {
		t.Fatal(err)
	}
	wantError(t, f.run(call.VerbDel, target), call.Refused, "code 11")
	wantError(t, f.run(call.VerbAdd, f.call("another")), call.Refused, "code 202")
	f.wantHeld("10.1.0.2", "fd00::2")
}

// Trap: a DEL queued while the daemon was down frees the live address of a new ADD with the same ID.
// That is why each ADD gets an ID that was never used.
func TestAzureQueuedDel(t *testing.T) {
	for name, c := range map[string]struct {
		id   string
		want []string
	}{
		"the same ID loses it":               {"id", nil},
		"an ID that was never used keeps it": {"id-u1", []string{"10.1.0.3", "fd00::3"}},
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
