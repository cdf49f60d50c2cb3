package delegate

import (
	"encoding/json"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/delegated-ipam/delegated-ipam/pkg/delegate/call"
	"github.com/delegated-ipam/delegated-ipam/pkg/delegate/profile"
	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

// dhcpBench is the real dhcp plugin with its daemon, and a real isc-dhcp-server.
type dhcpBench struct {
	*bench
	*harness.DHCP
}

// newDHCPBench is a bench whose server has a pool of three addresses.
func newDHCPBench(t *testing.T) *dhcpBench {
	t.Helper()
	return dhcpBenchWith(t, "10.77.0.10 10.77.0.12", "-timeout", "3s", "-resendtimeout", "6s")
}

// dhcpBenchWith is a bench with a pool of the server's, and flags of the plugin's daemon.
func dhcpBenchWith(t *testing.T, pool string, daemon ...string) *dhcpBench {
	t.Helper()
	d := &dhcpBench{DHCP: harness.NewDHCP(t, pool)}
	d.bench = realBench(t, `{"type":"dhcp","daemonSocketPath":"`+d.Socket+`"}`, `{}`, func(o *Options) { o.NetNS = d.NetNS })
	d.StartDaemon(t, filepath.Join(d.bin, "dhcp"), daemon...)
	return d
}

func TestTheRealDHCPServesItsVerbs(t *testing.T) {
	d := newDHCPBench(t)
	target := d.call("id")
	got, err := d.runner.Add(t.Context(), target)
	if err != nil {
		t.Fatal(err)
	}
	text := describe(got)
	if len(got.Addresses) != 1 || !strings.HasPrefix(text, "10.77.0.1") || !strings.HasSuffix(text, "/24 via 10.77.0.1") {
		t.Fatalf("got %s, want one address of the server's range", text)
	}
	lease := got.Addresses[0].Addr()
	d.WaitState(t, lease, "active")
	if again := d.add(target); again != text {
		t.Errorf("got %s from a second ADD, want the same lease %s", again, text)
	}
	other := target
	other.ContainerID = "other"
	if got := d.add(other); got == text {
		t.Errorf("got %s for another container ID, want another lease", got)
	}
	target.PrevResult = got.Raw
	d.must(call.VerbStatus, target)
	d.must(call.VerbDel, target)
	d.WaitState(t, lease, "free")
	d.must(call.VerbDel, target)
	d.must(call.VerbDel, other)
}

// Trap in the table: a CHECK of an unknown ID succeeds and takes a lease. That
// is why the profile verifies by ADD.
func TestCheckOfTheRealDHCPTakesALeaseForAnUnknownID(t *testing.T) {
	d := newDHCPBench(t)
	target := d.call("never-added")
	target.PrevResult = json.RawMessage(`{"cniVersion":"1.1.0","ips":[{"address":"10.77.0.10/24"}]}`)
	d.must(call.VerbCheck, target)
	if got := d.State(t, netip.MustParseAddr("10.77.0.10")); got != "active" {
		t.Errorf("the server says that its first address is %q, want the lease that CHECK has taken", got)
	}
	if got := target.Invocation.Profile.VerifyBy; got != profile.VerifyAdd {
		t.Errorf("the profile verifies by %q, want %q", got, profile.VerifyAdd)
	}
	d.must(call.VerbDel, target)
}

// Trap in the table: dhcp ignores all three conventions for a requested address.
func TestTheRealDHCPIsNotAskedForAnAddress(t *testing.T) {
	d := newDHCPBench(t)
	target := d.call("id")
	target.Requested = asked(addrs("10.77.0.12")...)
	wantError(t, d.run(call.VerbAdd, target), call.NotStarted, "10.77.0.12")

	target.Invocation.Profile.Requests, target.Invocation.Profile.RequestForm = []profile.Request{profile.RequestCNIArgs}, profile.FormAddress
	if got := d.add(target); strings.HasPrefix(got, "10.77.0.12/") {
		t.Errorf("got %s, want the request ignored", got)
	}
	d.must(call.VerbDel, target)
}

// Trap: killing the client does not stop its daemon, which goes on for up to
// its resend time (6 s here, 208 s by default).
func TestAnAddOfTheRealDHCPThatWasEndedStillTakesALease(t *testing.T) {
	d := newDHCPBench(t)
	target := d.call("id")
	d.SignalServer(t, unix.SIGSTOP)
	d.runner.opts.Timeout = 200 * time.Millisecond
	wantError(t, d.run(call.VerbAdd, target), call.Unknown, "--plugin-timeout")
	d.SignalServer(t, unix.SIGCONT)
	d.WaitState(t, netip.MustParseAddr("10.77.0.10"), "active")
	if got := target.Invocation.Profile.AddOutlivesSeconds; got != 208 {
		t.Errorf("the profile says that an ADD outlives its process by %d s, want the 208 of the daemon", got)
	}
}

// Trap: CHECK or ADD hang when the interface is gone.
func TestTheRealDHCPHangsWhenTheInterfaceIsGoneSoOurLimitEndsTheCall(t *testing.T) {
	d := newDHCPBench(t)
	target := d.call("id")
	d.add(target)
	harness.IP(t, "-n", d.Client, "link", "del", "eth0")
	d.must(call.VerbAdd, target) // answered from memory; only then does the daemon look
	d.runner.opts.Timeout = 300 * time.Millisecond
	for _, verb := range []string{call.VerbAdd, call.VerbCheck} {
		wantError(t, d.run(verb, target), call.Unknown, "--plugin-timeout")
	}
}

// Trap: exhaustion takes the daemon's whole resend time (3 s here, 208 s by
// default), because a server without a free address does not answer.
func TestAnExhaustedPoolOfTheRealDHCPLooksLikeATimeOutUnlessOurLimitIsLongerThanItsResendTime(t *testing.T) {
	d := dhcpBenchWith(t, "10.77.0.10 10.77.0.11", "-timeout", "1s", "-resendmax", "1s", "-resendtimeout", "3s")
	for _, id := range []string{"first", "second"} {
		d.add(d.call(id))
	}
	d.runner.opts.Timeout = 300 * time.Millisecond
	wantError(t, d.run(call.VerbAdd, d.call("impatient")), call.Unknown, "--plugin-timeout")

	d.runner.opts.Timeout = time.Minute
	e := wantError(t, d.run(call.VerbAdd, d.call("patient")), call.Refused, "no more tries")
	if e.Code < call.FirstPluginCode {
		t.Errorf("got code %d, want one of the plugin's own", e.Code)
	}
}

// Trap: the server must see DHCPRELEASE. This one does, and honours it; it has
// but one address, so the next client gets it or nothing.
func TestADelOfTheRealDHCPReachesTheServerWhichGivesTheAddressToTheNextClient(t *testing.T) {
	d := dhcpBenchWith(t, "10.77.0.10", "-timeout", "1s", "-resendmax", "1s", "-resendtimeout", "3s")
	only := netip.MustParseAddr("10.77.0.10")
	first := d.call("first")
	held := d.add(first)
	d.WaitState(t, only, "active")
	d.must(call.VerbDel, first)
	d.WaitState(t, only, "free")

	next := d.call("next")
	if got := d.add(next); got != held {
		t.Errorf("got %s for the next client, want %s, which the first one gave back", got, held)
	}
	d.must(call.VerbDel, next)
}

// Trap: GC (spec 1.1) by the container runtime. dhcp's is accepted without its
// daemon, which alone knows the leases: it cannot have freed one.
func TestGCByARuntimeDoesNotReachTheDaemonOfTheRealDHCP(t *testing.T) {
	absent := filepath.Join(t.TempDir(), "no-daemon.sock")
	b := realBench(t, `{"type":"dhcp","daemonSocketPath":"`+absent+`"}`, `{}`, func(o *Options) { o.NetNS = DefaultNetNS })
	target := b.call("id")
	if stdout, exit := b.byHand(call.VerbAdd, target, target.Invocation.Config); exit == 0 || !strings.Contains(string(stdout), absent) {
		t.Errorf("ADD: exit status %d: %s; want it to miss the daemon, or this test shows nothing", exit, stdout)
	}
	if stdout, exit := b.byHand("GC", target, gcConfig(t, target)); exit != 0 {
		t.Errorf("GC: exit status %d: %s", exit, stdout)
	}
}

// Trap: GC (spec 1.1) by the container runtime, with the daemon and a live lease.
func TestGCByARuntimeFreesNothingOfTheRealDHCP(t *testing.T) {
	d := newDHCPBench(t)
	target := d.call("id")
	held := d.add(target)
	lease := netip.MustParsePrefix(strings.Fields(held)[0]).Addr()
	d.WaitState(t, lease, "active")
	if stdout, exit := d.byHand("GC", target, gcConfig(t, target)); exit != 0 {
		t.Errorf("GC: exit status %d: %s", exit, stdout)
	}
	if got := d.State(t, lease); got != "active" {
		t.Errorf("the server says that the lease is %q after the GC, want \"active\"", got)
	}
	if again := d.add(target); again != held {
		t.Errorf("got %s after the GC, want the lease %s that the daemon has", again, held)
	}
	d.must(call.VerbDel, target)
}

func TestDHCPWantsANamespaceThatLasts(t *testing.T) {
	for name, netns := range map[string]string{"none is named": "", "an ephemeral one": EphemeralNetNS} {
		t.Run(name, func(t *testing.T) {
			b := realBench(t, `{"type":"dhcp"}`, `{}`, func(o *Options) { o.NetNS = netns })
			_, err := b.runner.NewInvocation(t.Context(), b.network, "id", "owner")
			wantText(t, err, "plugin dhcp", "the interface eth0 in it", "--cni-netns")
		})
	}
}

// Trap: dhcp with a missing ipam key dies of SIGSEGV, exit 2, empty stdout. No call
// context is made of such a configuration, so that it takes a broken record.
func TestTheRealDHCPWithoutAnIPAMKeyDiesOfSIGSEGVWhichIsUnclear(t *testing.T) {
	b := realBench(t, `{"type":"dhcp"}`, `{}`, func(o *Options) { o.NetNS = DefaultNetNS })
	target := b.call("id")
	target.Invocation.Config = json.RawMessage(`{"cniVersion":"1.1.0","name":"net"}`)
	e := wantError(t, b.run(call.VerbAdd, target), call.Unknown, "exit status 2 without a word on stdout")
	if !strings.Contains(e.Stderr, "goroutine") {
		t.Errorf("got stderr %q, want the end of a Go crash", e.Stderr)
	}
	b.network.PluginConfig = json.RawMessage(`{"type":"cilium-cni"}`)
	_, err := b.runner.NewInvocation(t.Context(), b.network, "id", "owner")
	wantText(t, err, "ipam")
}
