package plugin

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/profile"
)

// A fake imitates plugins of backends off the node as docs/reference/plugins.md describes them, with their
// embedded profiles. The real whereabouts is run by test/whereabouts.

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
	for _, pluginType := range []string{"whereabouts", "cni-ipvlan-vpc-k8s-ipam"} {
		t.Run(pluginType, func(t *testing.T) {
			f := imitate(t, pluginType)
			_, err := f.newInvocation("id")
			dangers := f.profiles[pluginType].Dangers
			wantText(t, err, append([]string{`"net"`, pluginType, "--accept-unsafe-plugin"}, dangers...)...)
			if len(dangers) < 2 {
				t.Errorf("the profile names %q; want every danger", dangers)
			}
			if _, err := os.Stat(filepath.Join(f.dir, "calls.log")); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("the plugin was run (%v), want not even VERSION", err)
			}
			accepted := imitate(t, pluginType, acceptUnsafe)
			accepted.wantAdd(accepted.call("id"), firstIPs)
		})
	}
}

// The addresses of an unsafe plugin are released also when it is no longer accepted.
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

	// The interface is the other half of the key of ADD; the key of DEL is the container ID, with
	// any pod.
	samePod.Invocation.IfName = "eth1"
	f.wantAdd(samePod, secondIPs)
	samePod.Invocation.Args = "IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=any"
	samePod.ContainerID = "another"
	f.must(samePod, call.VerbDel)
	f.wantHeld("10.1.0.2", "10.1.0.3", "fd00::2", "fd00::3")
	samePod.ContainerID = "other"
	f.must(samePod, call.VerbDel)
	f.wantHeld()

	// Our pods are unique to the attachment, so that one attachment is one address.
	f.wantAdd(one, firstIPs)
	f.wantAdd(other, secondIPs)
	f.must(one, call.VerbDel)
	f.wantHeld("10.1.0.3", "fd00::3")
}

// Trap: whereabouts' DEL drops every error, so that a reservation stays when the API server refuses
// the change. One that gets no response does so after 60 s; a DEL that is terminated before counts as
// failed.
func TestWhereaboutsDropsErrors(t *testing.T) {
	f := imitate(t, "whereabouts", acceptUnsafe)
	target := f.call("id")
	f.add(target)
	f.write("daemon-down", "")
	f.must(target, call.VerbDel)
	f.wantHeld("10.1.0.2", "fd00::2")

	const givesUp = time.Minute
	f.start(func(o *Options) { o.Timeout = givesUp })
	_, err := f.newInvocation("another")
	wantText(t, err, "--plugin-timeout is 1m0s", "expected less than 1m0s")
	wantError(t, f.run(call.VerbDel, target), call.NotStarted, "--plugin-timeout is 1m0s")
	f.start(func(o *Options) { o.Timeout = givesUp - 1 })
	f.must(target, call.VerbDel)
}

// Trap: whereabouts accepts GC and STATUS and does nothing, so that neither a runtime's GC frees ours
// nor STATUS reports whether it can serve.
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

// Trap: whereabouts frees nothing without a pod name, so DEL names the pod of the ADD.
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

// Trap: whereabouts' CHECK always fails. If that meant lost, every address would be lost.
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

// Trap: whereabouts' IP= adds an unreserved address, which a pod may get as well, and is refused
// without a prefix length.
func TestWhereaboutsRequest(t *testing.T) {
	f := imitate(t, "whereabouts", acceptUnsafe)
	target := f.call("id")
	target.Requested = request("10.1.0.77")
	wantError(t, f.run(call.VerbAdd, target), call.NotStarted, "10.1.0.77")
	target.Invocation.Profile.Requests, target.Invocation.Profile.RequestForm = []profile.Request{profile.RequestCNIArgs}, profile.FormAddress
	wantError(t, f.run(call.VerbAdd, target), call.Refused, "expected an address with a prefix length")
	target.Invocation.Profile.RequestForm = profile.FormCIDR
	f.wantAdd(target, firstIPs+", 10.1.0.77/24 via 10.1.0.1")
	f.wantHeld("10.1.0.2", "fd00::2")
}

// Trap: the AWS plugin releases what it finds on an interface, and none has our addresses.
func TestAWSPlugin(t *testing.T) {
	f := imitate(t, "cni-ipvlan-vpc-k8s-ipam", acceptUnsafe)
	target := f.call("id")
	if got := target.Invocation.CNIVersion; got != "0.4.0" {
		t.Errorf("CNI version %s, want 0.4.0, its only one", got)
	}
	f.wantAdd(target, firstIPs)
	f.wantAdd(target, secondIPs) // because it knows no container ID
	f.must(target, call.VerbDel)
	f.wantHeld("10.1.0.2", "10.1.0.3", "fd00::2", "fd00::3")
	f.must(f.call("never-added"), call.VerbCheck)
	if got := target.Invocation.Profile; got.VerifyBy != profile.VerifyNothing {
		t.Errorf("the profile verifies by %q", got.VerifyBy)
	}
}

// Trap: it gives a held address to a pod after reuseIPWait.
func TestAWSReuse(t *testing.T) {
	f := imitate(t, "cni-ipvlan-vpc-k8s-ipam", acceptUnsafe)
	f.wantAdd(f.call("health"), firstIPs)
	f.wantAdd(f.call("pod"), secondIPs)
	f.write("reuse-wait-over", "")
	f.wantAdd(f.call("another-pod"), firstIPs)
}
