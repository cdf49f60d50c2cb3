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

// The plugins here cannot be run in a test: the scripted plugin imitates them
// as docs/plugins.md describes them, with their embedded profiles.

const (
	first  = "10.1.0.2/24 via 10.1.0.1, fd00::2/120 via fd00::1"
	second = "10.1.0.3/24 via 10.1.0.1, fd00::3/120 via fd00::1"
)

func acceptUnsafe(o *Options) { o.AcceptUnsafe = true }

// reconcile runs what frees the addresses of pods that do not live.
func (b *bench) reconcile(c call.Call, living string) {
	b.t.Helper()
	b.write("living-pods", living)
	if out, err := exec.Command(c.Invocation.Binary, "reconcile").CombinedOutput(); err != nil {
		b.t.Fatalf("reconcile: %v\n%s", err, out)
	}
}

// Trap: whereabouts' reconciler frees what no live pod has, and nothing notices: the
// operator has to say that this is wanted.
func TestAnUnsafePluginIsRefusedWithItsReasonUntilItIsAccepted(t *testing.T) {
	for pluginType, reason := range map[string]string{
		"whereabouts":             "reconciler frees each one whose pod does not live",
		"cni-ipvlan-vpc-k8s-ipam": "an address that no interface has is never given back",
	} {
		t.Run(pluginType, func(t *testing.T) {
			b := imitate(t, pluginType)
			_, err := b.runner.NewInvocation(t.Context(), b.network, "id", "owner")
			wantText(t, err, `"net"`, pluginType, reason, "--accept-unsafe-plugin")
			if entries, err := os.ReadDir(b.scripts); err != nil || len(entries) > 0 {
				t.Errorf("the plugin was run (%v, %v), want it not even asked for its versions", entries, err)
			}
			accepted := imitate(t, pluginType, acceptUnsafe)
			if got := accepted.add(accepted.call("id")); got != first {
				t.Errorf("got %s once it is accepted, want %s", got, first)
			}
		})
	}
}

func TestAnUnsafePluginThatIsAcceptedNoLongerStillGivesBack(t *testing.T) {
	b := imitate(t, "whereabouts", acceptUnsafe)
	target := b.call("id")
	b.add(target)
	refusing, err := New(Options{BinDirs: b.opts.BinDirs, LockFile: b.opts.LockFile, Profiles: b.opts.Profiles})
	if err != nil {
		t.Fatal(err)
	}
	if err := refusing.Del(t.Context(), target); err != nil {
		t.Error(err)
	}
	b.stores()
}

// Trap: two attachments with the same pod name and interface are the same address.
func TestWhereaboutsKnowsPodsAndNotContainerIDs(t *testing.T) {
	b := imitate(t, "whereabouts", acceptUnsafe)
	one, other := b.call("one"), b.call("other")
	if got := b.add(one); got != first {
		t.Errorf("got %s, want %s", got, first)
	}

	samePod := other
	samePod.Invocation.Args = one.Invocation.Args
	if got := b.add(samePod); got != first {
		t.Errorf("got %s for another container ID of the same pod, want the same %s", got, first)
	}
	data, err := os.ReadFile(filepath.Join(b.scripts, "store", "10.1.0.2"))
	if err != nil || !strings.HasSuffix(string(data), "\nother") {
		t.Errorf("the address is of %q (%v), want its container ID rewritten", data, err)
	}

	// The interface is the other half of the key.
	samePod.Invocation.IfName = "eth1"
	if got := b.add(samePod); got != second {
		t.Errorf("got %s for another interface of the same pod, want %s", got, second)
	}
	b.must(call.VerbDel, samePod)
	b.stores("10.1.0.2", "fd00::2")

	// Our pods are unique to the attachment, so that this does not happen.
	if got := b.add(other); got != second {
		t.Errorf("got %s for another attachment, want %s", got, second)
	}
	b.must(call.VerbDel, one)
	b.stores("10.1.0.3", "fd00::3")
}

// Trap: whereabouts accepts GC and STATUS and does nothing, so that neither a
// runtime's GC frees ours nor STATUS tells whether it can serve.
func TestWhereaboutsAcceptsGCAndSTATUSAndDoesNothing(t *testing.T) {
	b := imitate(t, "whereabouts", acceptUnsafe)
	target := b.call("id")
	b.add(target)
	for verb, config := range map[string][]byte{"GC": gcConfig(t, target), call.VerbStatus: target.Invocation.Config} {
		if stdout, exit := b.byHand(verb, target, config); exit != 0 || len(stdout) != 0 {
			t.Errorf("%s: exit status %d: %s; want it accepted without a word", verb, exit, stdout)
		}
	}
	b.stores("10.1.0.2", "fd00::2")
}

// Trap: whereabouts frees nothing without a pod name, so that DEL names that of the ADD.
func TestWhereaboutsWithoutAPodNameFreesNothing(t *testing.T) {
	b := imitate(t, "whereabouts", acceptUnsafe)
	target := b.call("id")
	b.add(target)
	nameless := target
	nameless.Invocation.Args = "IgnoreUnknown=1"
	nameless.Invocation.Profile.PodIdentity = profile.PodIdentityNone
	b.must(call.VerbDel, nameless)
	b.stores("10.1.0.2", "fd00::2")
	wantError(t, b.run(call.VerbAdd, nameless), call.Refused, "K8S_POD_NAME")
	b.must(call.VerbDel, target)
	b.stores()
}

// Trap: its ip-reconciler frees every reservation whose pod is not a live pod.
// That is why whereabouts is refused unless it is accepted.
func TestTheReconcilerOfWhereaboutsFreesOurAddressWhileItIsHeldAndAPodGetsIt(t *testing.T) {
	b := imitate(t, "whereabouts", acceptUnsafe)
	ours, pod := b.call("id"), b.call("pod")
	pod.Invocation.Args = "IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=web"
	b.add(ours)
	b.reconcile(ours, "default/web\n")
	b.stores()
	if got := b.add(pod); got != first {
		t.Errorf("the pod got %s, want the %s that we still hold by our journal", got, first)
	}
	b.reconcile(ours, "default/web\n")
	b.stores("10.1.0.2", "fd00::2")
}

// Trap: whereabouts' CHECK always fails. Whoever believed it would give up every address.
func TestWhereaboutsSaysNoToEveryCheckAndIsNotBelieved(t *testing.T) {
	b := imitate(t, "whereabouts", acceptUnsafe)
	target := b.call("id")
	b.add(target)
	err := b.run(call.VerbCheck, target)
	wantError(t, err, call.Refused, "not supported")
	if call.IsLost(target.Invocation, err) || target.Invocation.Profile.VerifyBy != profile.VerifyNothing {
		t.Errorf("the CHECK of a held address means lost, want it neither asked nor believed: %v", err)
	}
}

// Trap: whereabouts' IP= adds an unreserved address, which a pod may get as well.
func TestWhereaboutsIsNotAskedForAnAddressBecauseItReservesNone(t *testing.T) {
	b := imitate(t, "whereabouts", acceptUnsafe)
	target := b.call("id")
	target.Requested = asked(addrs("10.1.0.77")...)
	wantError(t, b.run(call.VerbAdd, target), call.NotStarted, "10.1.0.77")

	// What it would do: answer with an address that it has reserved for nobody.
	target.Invocation.Profile.Requests, target.Invocation.Profile.RequestForm = []profile.Request{profile.RequestCNIArgs}, profile.FormAddress
	if got, want := b.add(target), first+", 10.1.0.77/24 via 10.1.0.1"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	b.stores("10.1.0.2", "fd00::2")
}

// Trap: calico's second ADD is a second address, so that a DEL comes before each.
func TestCalicoGivesASecondAddressUnderTheSameHandleAndOneDelFreesBoth(t *testing.T) {
	b := imitate(t, "calico-ipam")
	target := b.call("id")
	if one, two := b.add(target), b.add(target); one != first || two != second {
		t.Errorf("got %s and %s, want %s and %s", one, two, first, second)
	}
	if got := target.Invocation.Profile.RepeatedAdd; got != profile.RepeatedAddAnotherAddress {
		t.Errorf("the profile says that a repeated ADD is %q, so that no DEL comes before it", got)
	}
	b.must(call.VerbDel, target)
	b.stores()
}

// Trap: calico's CHECK always succeeds, also for what was never held.
func TestCalicoSaysYesToEveryCheckAndIsNotBelieved(t *testing.T) {
	b := imitate(t, "calico-ipam")
	target := b.call("never-added")
	b.must(call.VerbCheck, target)
	if got := target.Invocation.Profile; got.CheckProves != profile.ProvesNothing || got.VerifyBy == profile.VerifyCheck {
		t.Errorf("the profile says that CHECK proves %q and verifies by %q", got.CheckProves, got.VerifyBy)
	}
}

func TestCalicoIsAskedForOneAddressByCNIArgs(t *testing.T) {
	b := imitate(t, "calico-ipam")
	target := b.call("id")
	target.Requested = asked(addrs("10.1.0.77")...)
	if got, want := b.add(target), "10.1.0.77/24 via 10.1.0.1, fd00::2/120 via fd00::1"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got := b.calls(call.VerbAdd)[0].Env["CNI_ARGS"]; got != "IgnoreUnknown=1;IP=10.1.0.77" {
		t.Errorf("got CNI_ARGS %q, want the address and no pod: calico's GC frees what names an unknown one", got)
	}
	target.ContainerID, target.Requested = "another", asked(addrs("10.1.0.78", "fd00::78")...)
	wantError(t, b.run(call.VerbAdd, target), call.NotStarted, "10.1.0.78")
}

// Trap: calico knows network and container ID, not the interface, so that two
// attachments of one ID would free each other's.
func TestCalicoIsKeyedByNetworkAndIDAndNotByInterface(t *testing.T) {
	b := imitate(t, "calico-ipam")
	target := b.call("id")
	b.add(target)
	elsewhere := target
	b.network.Name = "another"
	elsewhere.Invocation.Config = b.context("id").Config
	b.must(call.VerbDel, elsewhere)
	b.stores("10.1.0.2", "fd00::2")
	target.Invocation.IfName = "eth1"
	b.must(call.VerbDel, target)
	b.stores()
}

// Trap: its GC frees what names an unknown pod, and keeps what names none.
func TestTheGCOfCalicoFreesWhatNamesAnUnknownPodAndKeepsOursWhichNamesNone(t *testing.T) {
	for name, c := range map[string]struct {
		args string
		kept []string
	}{
		"no pod, as our contexts have it": {"", []string{"10.1.0.2", "fd00::2"}},
		"a pod that lives":                {";K8S_POD_NAMESPACE=default;K8S_POD_NAME=web", []string{"10.1.0.2", "fd00::2"}},
		"a pod that is not known":         {";K8S_POD_NAMESPACE=delegated-ipam;K8S_POD_NAME=id", nil},
	} {
		t.Run(name, func(t *testing.T) {
			b := imitate(t, "calico-ipam")
			target := b.call("id")
			target.Invocation.Args += c.args
			b.add(target)
			b.reconcile(target, "default/web\n")
			b.stores(c.kept...)
		})
	}
}

// Trap: calico and azure have no STATUS; both were written before CNI 1.1.0.
func TestCalicoAndAzureHaveNeitherSTATUSNorGC(t *testing.T) {
	for _, pluginType := range []string{"calico-ipam", "azure-ipam"} {
		t.Run(pluginType, func(t *testing.T) {
			b := imitate(t, pluginType)
			target := b.call("id")
			if target.Invocation.CNIVersion != "1.0.0" || target.Invocation.HasStatus() {
				t.Errorf("got CNI version %s with STATUS %t, want 1.0.0 without", target.Invocation.CNIVersion, target.Invocation.HasStatus())
			}
			b.add(target)
			for _, verb := range []string{call.VerbStatus, "GC"} {
				if stdout, exit := b.byHand(verb, target, gcConfig(t, target)); exit == 0 {
					t.Errorf("%s succeeded: %s", verb, stdout)
				}
			}
			b.stores("10.1.0.2", "fd00::2")
		})
	}
}

// Trap: without a pod's name it gives nothing, so one is always sent.
func TestAzureWantsAPodAndIsSentTheOwnersOrASyntheticOne(t *testing.T) {
	for name, c := range map[string]struct{ owner, pod string }{
		"an owner that is a pod":    {"kube-system/web-0", "K8S_POD_NAMESPACE=kube-system;K8S_POD_NAME=web-0"},
		"an owner that is no pod":   {"health", "K8S_POD_NAMESPACE=delegated-ipam;K8S_POD_NAME=id"},
		"an owner that has no name": {"", "K8S_POD_NAMESPACE=delegated-ipam;K8S_POD_NAME=id"},
	} {
		t.Run(name, func(t *testing.T) {
			b := imitate(t, "azure-ipam")
			context, err := b.runner.NewInvocation(t.Context(), b.network, "id", c.owner)
			if err != nil {
				t.Fatal(err)
			}
			target := call.Call{ContainerID: "id", Invocation: context}
			nameless := target
			nameless.Invocation.Profile.PodIdentity, nameless.Invocation.Args = profile.PodIdentityNone, "IgnoreUnknown=1"
			wantError(t, b.run(call.VerbAdd, nameless), call.Refused, "K8S_POD_NAME")
			b.stores()
			b.add(target)
			if got := b.calls(call.VerbAdd)[1].Env["CNI_ARGS"]; !strings.Contains(got, c.pod) {
				t.Errorf("got CNI_ARGS %q, want %s", got, c.pod)
			}
		})
	}
}

// Trap: azure honours no request for an address, and gives another one without a word.
func TestAzureIsNotAskedForAnAddressBecauseItHonoursNoConvention(t *testing.T) {
	b := imitate(t, "azure-ipam")
	target := b.call("id")
	target.Requested = asked(addrs("10.1.0.77")...)
	wantError(t, b.run(call.VerbAdd, target), call.NotStarted, "10.1.0.77")

	// What it would do: give another one, whichever way it is asked.
	target.Invocation.Profile.RequestForm = profile.FormAddress
	target.Invocation.Capabilities = []string{call.CapabilityIPs}
	for _, convention := range []profile.Request{profile.RequestCNIArgs, profile.RequestArgsCNI, profile.RequestRuntimeConfig} {
		target.Invocation.Profile.Requests = []profile.Request{convention}
		if got := b.add(target); got != first {
			t.Errorf("asked by %s it gave %s, want %s", convention, got, first)
		}
		b.must(call.VerbDel, target)
	}
}

// Trap: azure says yes to every CHECK, so that its ADD of a held ID is the question.
func TestAzureGivesTheSameAnswerToARepeatedAddAndYesToEveryCheck(t *testing.T) {
	b := imitate(t, "azure-ipam")
	target := b.call("id")
	if one, two := b.add(target), b.add(target); one != first || two != first {
		t.Errorf("got %s and %s, want %s twice", one, two, first)
	}
	b.must(call.VerbCheck, b.call("never-added"))
	if got := target.Invocation.Profile; got.VerifyBy != profile.VerifyAdd || got.RepeatedAdd != profile.RepeatedAddSameAnswer {
		t.Errorf("the profile verifies by %q with a repeated ADD that is %q, want ADD and the same answer", got.VerifyBy, got.RepeatedAdd)
	}
}

// Trap: azure knows the container ID alone, so that two attachments of one ID would
// have one address.
func TestAzureIsKeyedByIDAlone(t *testing.T) {
	b := imitate(t, "azure-ipam")
	target := b.call("id")
	b.add(target)
	target.Invocation.IfName = "eth1"
	if got := b.add(target); got != first {
		t.Errorf("got %s for another interface, want the same %s", got, first)
	}
}

// Trap: a DEL queued while the daemon was down frees the live address of a new
// ADD with the same ID. That is why the ID gets a generation after a DEL.
func TestADelThatAzureQueuedFreesTheLiveAddressOfANewAddWithTheSameID(t *testing.T) {
	for name, c := range map[string]struct {
		next string
		want []string
	}{
		"the same ID loses it":             {"id", nil},
		"an ID with a generation keeps it": {"id-g1", []string{"10.1.0.3", "fd00::3"}},
	} {
		t.Run(name, func(t *testing.T) {
			b := imitate(t, "azure-ipam")
			target := b.call("id")
			b.add(target)
			b.write("daemon-down", "")
			b.must(call.VerbDel, target) // says success
			b.stores("10.1.0.2", "fd00::2")
			if err := os.Remove(filepath.Join(b.scripts, "daemon-down")); err != nil {
				t.Fatal(err)
			}
			target.ContainerID = c.next
			b.add(target)
			b.stores(c.want...)
			if got := target.Invocation.Profile; !got.SingleUseIDs() {
				t.Errorf("the profile says that DEL is %q, which spends no ID", got.Del)
			}
		})
	}
}

// Trap: the AWS plugin frees what it finds on an interface, and none has our addresses.
func TestTheAWSPluginFreesNothingThatNoInterfaceHas(t *testing.T) {
	b := imitate(t, "cni-ipvlan-vpc-k8s-ipam", acceptUnsafe)
	target := b.call("id")
	if one, two := b.add(target), b.add(target); one != first || two != second {
		t.Errorf("got %s and %s, want another address each time, because it knows no container ID", one, two)
	}
	b.must(call.VerbDel, target)
	b.stores("10.1.0.2", "10.1.0.3", "fd00::2", "fd00::3")
	b.must(call.VerbCheck, b.call("never-added"))
	if got := target.Invocation.Profile; got.Del != profile.DelUnproved || got.VerifyBy != profile.VerifyNothing {
		t.Errorf("the profile says that DEL is %q and verifies by %q", got.Del, got.VerifyBy)
	}
}
