package delegate

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/pkg/delegate/call"
	"github.com/delegated-ipam/delegated-ipam/pkg/delegate/profile"
)

// These plugins cannot be run in a test. A fake imitates them as docs/plugins.md describes them, with
// their embedded profiles.

func acceptUnsafe(o *Options) { o.AcceptUnsafe = true }

// reconcile runs the part of a plugin that frees the addresses of pods that do not live.
func (f *fixture) reconcile(c call.Call, livingPods string) {
	f.t.Helper()
	f.write("living-pods", livingPods)
	if out, err := exec.Command(c.Invocation.Binary, "reconcile").CombinedOutput(); err != nil {
		f.t.Fatalf("reconcile: %v\n%s", err, out)
	}
}

// wantRequestIgnored requests an address from a plugin whose profile honours no convention, which
// does not start it, and then by a convention anyway, which returns other addresses.
func (f *fixture) wantRequestIgnored(c call.Call, convention profile.Request, want string) {
	f.t.Helper()
	c.Requested = request("10.1.0.77")
	wantError(f.t, f.run(call.VerbAdd, c), call.NotStarted, "10.1.0.77")
	c.Invocation.Profile.Requests, c.Invocation.Profile.RequestForm = []profile.Request{convention}, profile.FormAddress
	c.Invocation.Capabilities = []string{call.CapabilityIPs}
	f.wantAdd(c, want)
}

// Trap: whereabouts' reconciler frees what no live pod has, and nothing notices: the operator has to
// accept that.
func TestUnsafePluginReason(t *testing.T) {
	for pluginType, reason := range map[string]string{
		"whereabouts":             "reconciler frees each one whose pod does not live",
		"cni-ipvlan-vpc-k8s-ipam": "an address that no interface has is never given back",
	} {
		t.Run(pluginType, func(t *testing.T) {
			f := imitate(t, pluginType)
			_, err := f.newInvocation("id")
			wantText(t, err, `"net"`, pluginType, reason, "--accept-unsafe-plugin")
			if entries, err := os.ReadDir(f.dir); err != nil || len(entries) > 0 {
				t.Errorf("the plugin was run (%v, %v), want not even VERSION", entries, err)
			}
			accepted := imitate(t, pluginType, acceptUnsafe)
			accepted.wantAdd(accepted.call("id"), firstIPs)
		})
	}
}

// What an unsafe plugin holds is released also when it is no longer accepted.
func TestUnsafePluginRelease(t *testing.T) {
	f := imitate(t, "whereabouts", acceptUnsafe)
	target := f.call("id")
	f.add(target)
	f.start(func(o *Options) { o.AcceptUnsafe = false })
	f.must(target, call.VerbDel)
	f.wantHeld()
}

// Trap: two attachments with the same pod name and interface are the same address.
func TestWhereaboutsPodKey(t *testing.T) {
	f := imitate(t, "whereabouts", acceptUnsafe)
	one, other := f.call("one"), f.call("other")
	f.wantAdd(one, firstIPs)

	samePod := other
	samePod.Invocation.Args = one.Invocation.Args
	f.wantAdd(samePod, firstIPs)
	data, err := os.ReadFile(filepath.Join(f.dir, "store", "10.1.0.2"))
	if err != nil || !strings.HasSuffix(string(data), "\nother") {
		t.Errorf("the address is of %q (%v), want its container ID rewritten", data, err)
	}

	// The interface is the other half of the key.
	samePod.Invocation.IfName = "eth1"
	f.wantAdd(samePod, secondIPs)
	f.must(samePod, call.VerbDel)
	f.wantHeld("10.1.0.2", "fd00::2")

	// Our pods are unique to the attachment, so that this does not happen.
	f.wantAdd(other, secondIPs)
	f.must(one, call.VerbDel)
	f.wantHeld("10.1.0.3", "fd00::3")
}

// Trap: whereabouts accepts GC and STATUS and does nothing, so that neither a runtime's GC frees ours
// nor STATUS tells whether it can serve.
func TestWhereaboutsGCAndStatus(t *testing.T) {
	f := imitate(t, "whereabouts", acceptUnsafe)
	target := f.call("id")
	f.add(target)
	if stdout := f.gc(target, `[]`); stdout != "" {
		t.Errorf("GC printed %s", stdout)
	}
	if stdout, exit := f.byHand(call.VerbStatus, target, target.Invocation.Config); exit != 0 || len(stdout) != 0 {
		t.Errorf("STATUS: exit status %d: %s; want it accepted without output", exit, stdout)
	}
	f.wantHeld("10.1.0.2", "fd00::2")
}

// Trap: whereabouts frees nothing without a pod name, so that DEL names that of the ADD.
func TestWhereaboutsWithoutPod(t *testing.T) {
	f := imitate(t, "whereabouts", acceptUnsafe)
	target := f.call("id")
	f.add(target)
	nameless := target
	nameless.Invocation.Args = "IgnoreUnknown=1"
	nameless.Invocation.Profile.PodIdentity = profile.PodIdentityNone
	f.must(nameless, call.VerbDel)
	f.wantHeld("10.1.0.2", "fd00::2")
	wantError(t, f.run(call.VerbAdd, nameless), call.Refused, "K8S_POD_NAME")
	f.must(target, call.VerbDel)
	f.wantHeld()
}

// Trap: its ip-reconciler frees each reservation whose pod is not a live pod. That is why whereabouts
// is refused unless it is accepted.
func TestWhereaboutsReconciler(t *testing.T) {
	f := imitate(t, "whereabouts", acceptUnsafe)
	ours, pod := f.call("id"), f.call("pod")
	pod.Invocation.Args = "IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=web"
	f.add(ours)
	f.reconcile(ours, "default/web\n")
	f.wantHeld()
	f.wantAdd(pod, firstIPs) // which we still hold by our journal
	f.reconcile(ours, "default/web\n")
	f.wantHeld("10.1.0.2", "fd00::2")
}

// Trap: whereabouts' CHECK always fails. If that meant lost, every address would be given up.
func TestWhereaboutsCheck(t *testing.T) {
	f := imitate(t, "whereabouts", acceptUnsafe)
	target := f.call("id")
	f.add(target)
	err := f.run(call.VerbCheck, target)
	wantError(t, err, call.Refused, "not supported")
	if call.IsLost(target.Invocation, err) || target.Invocation.Profile.VerifyBy != profile.VerifyNothing {
		t.Errorf("the CHECK of a held address means lost, want it neither called nor trusted: %v", err)
	}
}

// Trap: whereabouts' IP= adds an unreserved address, which a pod may get as well.
func TestWhereaboutsRequest(t *testing.T) {
	f := imitate(t, "whereabouts", acceptUnsafe)
	f.wantRequestIgnored(f.call("id"), profile.RequestCNIArgs, firstIPs+", 10.1.0.77/24 via 10.1.0.1")
	f.wantHeld("10.1.0.2", "fd00::2")
}

// Trap: the AWS plugin frees what it finds on an interface, and none has our addresses.
func TestAWSPlugin(t *testing.T) {
	f := imitate(t, "cni-ipvlan-vpc-k8s-ipam", acceptUnsafe)
	target := f.call("id")
	f.wantAdd(target, firstIPs)
	f.wantAdd(target, secondIPs) // because it knows no container ID
	f.must(target, call.VerbDel)
	f.wantHeld("10.1.0.2", "10.1.0.3", "fd00::2", "fd00::3")
	f.must(f.call("never-added"), call.VerbCheck)
	if got := target.Invocation.Profile; got.Del != profile.DelUnproved || got.VerifyBy != profile.VerifyNothing {
		t.Errorf("by the profile DEL is %q, and it verifies by %q", got.Del, got.VerifyBy)
	}
}
