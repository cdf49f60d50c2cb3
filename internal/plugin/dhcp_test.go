package plugin

import (
	"encoding/json"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/profile"
	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

// The names of the tests with a real server have RealDHCP in them, by which the Makefile selects
// them.

// dhcpFixture is the real dhcp plugin with its daemon, and a real isc-dhcp-server.
type dhcpFixture struct {
	*fixture
	*harness.DHCP
}

// threeAddresses is a pool of the server.
const threeAddresses = "10.77.0.10 10.77.0.12"

// newDHCP returns a fixture whose server has a pool of three addresses.
func newDHCP(t *testing.T) *dhcpFixture {
	t.Helper()
	return newDHCPOf(t, "", harness.NewDHCP(t, threeAddresses))
}

// newDHCPOf returns a fixture with a server, a version of the plugin, as newRealOf has it, and flags of
// its daemon.
func newDHCPOf(t *testing.T, version string, server *harness.DHCP, daemonFlags ...string) *dhcpFixture {
	t.Helper()
	d := &dhcpFixture{DHCP: server}
	d.fixture = newRealOf(t, version, `{"type":"dhcp","daemonSocketPath":"`+d.Socket+`"}`, func(o *Options) { o.NetNS = d.NetNS })
	if len(daemonFlags) == 0 {
		daemonFlags = []string{"-timeout", "10s", "-resendtimeout", "60s"}
	}
	d.StartDaemon(t, filepath.Join(d.bin, "dhcp"), daemonFlags...)
	return d
}

// eachDHCP runs a test with each version of the plugin, named as newRealOf names it.
func eachDHCP(t *testing.T, run func(t *testing.T, version string)) {
	t.Run("newest", func(t *testing.T) { run(t, "") })
	t.Run(harness.PluginsV19, func(t *testing.T) { run(t, harness.PluginsV19) })
}

func TestRealDHCPVerbs(t *testing.T) {
	eachDHCP(t, func(t *testing.T, version string) {
		testDHCPVerbs(t, newDHCPOf(t, version, harness.NewDHCP(t, threeAddresses)))
	})
}

func testDHCPVerbs(t *testing.T, d *dhcpFixture) {
	t.Helper()
	target := d.call("id")
	got := d.add(target)
	ips, lease := ipsOf(got), got.Addresses[0].Addr()
	d.WaitState(t, lease, "active")
	if !strings.HasPrefix(ips, "10.77.0.1") || !strings.HasSuffix(ips, "/24 via 10.77.0.1") {
		t.Fatalf("got %s, want an address of the server's range", ips)
	}
	d.gc(target) // of the container runtime
	if got := d.State(t, lease); got != "active" {
		t.Errorf("the server's lease is %q after the GC, want \"active\"", got)
	}
	target.PrevResult = d.wantAdd(target, ips).Raw
	other := target
	other.ContainerID = "other"
	if got := ipsOf(d.add(other)); got == ips {
		t.Errorf("got %s for another container ID, want another lease", got)
	}
	d.must(target, call.VerbStatus, call.VerbDel)
	d.WaitState(t, lease, "free")
	d.must(target, call.VerbDel)
	d.must(other, call.VerbDel)
}

// Trap: v1.10.0 sends the release from the leased address. Where that is not local, DEL succeeds and the
// server keeps the lease. v1.9.1 releases it from any namespace.
func TestRealDHCPUnpreparedNamespace(t *testing.T) {
	eachDHCP(t, func(t *testing.T, version string) {
		d := newDHCPOf(t, version, harness.NewDHCPUnprepared(t, threeAddresses))
		target := d.call("id")
		lease := d.add(target).Addresses[0].Addr()
		d.WaitState(t, lease, "active")
		d.must(target, call.VerbDel)
		if !target.Invocation.Profile.ReleaseFromAddress {
			t.Error("the profile does not name the trap")
		}
		if version == harness.PluginsV19 {
			d.WaitState(t, lease, "free")
			return
		}
		// The server handles messages in order: after this lease it would have handled a release.
		other := d.add(d.call("other")).Addresses[0].Addr()
		d.WaitState(t, other, "active")
		if got := d.State(t, lease); got != "active" || other == lease {
			t.Errorf("the released lease of %s is %q, and %s was leased next; want it \"active\"", lease, got, other)
		}
	})
}

// The prepared namespace does not attract the traffic of the addresses that are local in it.
func TestRealDHCPNamespaceIsSilent(t *testing.T) {
	d := newDHCP(t)
	target := d.call("id")
	lease := d.add(target).Addresses[0].Addr()
	d.must(target, call.VerbDel)
	d.WaitState(t, lease, "free")
	if got := d.NeighbourState(t, lease); got != "" {
		t.Errorf("the server's ARP table has the leased address as %s; want no entry", got)
	}
	if got := d.Neighbour(t, lease); got != "FAILED" {
		t.Errorf("ARP for the leased address ended as %s, want FAILED", got)
	}
	// Without arp_ignore the namespace answers, so the ARP above failed because of it.
	harness.IP(t, "netns", "exec", d.Client, "sysctl", "-qw", "net.ipv4.conf.all.arp_ignore=0")
	if got := d.Neighbour(t, lease.Next()); got != "REACHABLE" {
		t.Errorf("ARP without arp_ignore ended as %s, want REACHABLE", got)
	}
}

// Trap in the table: a CHECK of an unknown ID succeeds and takes a lease. That is why the profile
// verifies by ADD.
func TestRealDHCPCheck(t *testing.T) {
	d := newDHCP(t)
	target := d.call("never-added")
	target.PrevResult = json.RawMessage(`{"cniVersion":"1.1.0","ips":[{"address":"10.77.0.10/24"}]}`)
	d.must(target, call.VerbCheck)
	if got := d.State(t, netip.MustParseAddr("10.77.0.10")); got != "active" {
		t.Errorf("the server's first address is %q, want the lease that CHECK has taken", got)
	}
	if got := target.Invocation.Profile.VerifyBy; got != profile.VerifyAdd {
		t.Errorf("the profile verifies by %q, want %q", got, profile.VerifyAdd)
	}
	d.must(target, call.VerbDel)
}

// Trap: killing the client does not stop its daemon, which continues for up to its resend time (60 s
// here, 208 s by default).
func TestRealDHCPKilledAdd(t *testing.T) {
	d := newDHCP(t)
	target := d.call("id")
	d.SignalServer(t, unix.SIGSTOP)
	d.runner.opts.Timeout = 2 * time.Second // in which the plugin asks its daemon
	wantError(t, d.run(call.VerbAdd, target), call.Unknown, "--plugin-timeout")
	d.SignalServer(t, unix.SIGCONT)
	d.WaitState(t, netip.MustParseAddr("10.77.0.10"), "active")
	if got := target.Invocation.Profile.AddOutlivesSeconds; got != 208 {
		t.Errorf("by the profile an ADD outlives its process by %d s, want the 208 of the daemon", got)
	}
}

// Trap: exhaustion takes the daemon's whole resend time (3 s here, 208 s by default), because a
// server without a free address does not respond. Below that it looks like a timeout.
func TestRealDHCPExhausted(t *testing.T) {
	d := newDHCPOf(t, "", harness.NewDHCP(t, "10.77.0.10 10.77.0.11"), "-timeout", "1s", "-resendmax", "1s", "-resendtimeout", "3s")
	for _, id := range []string{"first", "second"} {
		d.add(d.call(id))
	}
	d.runner.opts.Timeout = 300 * time.Millisecond
	wantError(t, d.run(call.VerbAdd, d.call("impatient")), call.Unknown, "--plugin-timeout")

	d.runner.opts.Timeout = time.Minute
	e := wantError(t, d.run(call.VerbAdd, d.call("patient")), call.Refused, "no more tries")
	if !e.IsPluginRefusal() {
		t.Errorf("got code %d, want one of the plugin's own", e.Code)
	}
}

// Trap: if no server responds until a lease has ended, the plugin's daemon sets the interface down, so that its routes are
// removed, and no ADD of that lease returns from then on. What docs/reference/plugins.md advises gets the address back.
func TestRealDHCPOutageBeyondLease(t *testing.T) {
	d := newDHCPOf(t, "", harness.NewDHCP(t, "10.77.0.10; min-lease-time 10; max-lease-time 10"),
		"-timeout", "1s", "-resendmax", "1s", "-resendtimeout", "2s")
	target := d.call("id")
	ips := ipsOf(d.add(target))
	d.SignalServer(t, unix.SIGSTOP)
	harness.Eventually(t, "the interface to be down", func() error {
		return exec.Command("ip", "netns", "exec", d.Client, "grep", "-q", "down", "/sys/class/net/eth0/operstate").Run()
	})
	d.SignalServer(t, unix.SIGCONT)
	d.runner.opts.Timeout = 2 * time.Second
	wantError(t, d.run(call.VerbAdd, target), call.Unknown, "--plugin-timeout")

	d.runner.opts.Timeout = time.Minute
	check.Must(t, os.Remove(d.Socket)) // of the first one, which harness.DHCP ends with the test
	d.StartDaemon(t, filepath.Join(d.bin, "dhcp"))
	harness.IP(t, "-n", d.Client, "link", "set", "eth0", "up")
	harness.IP(t, "-n", d.Client, "route", "add", "10.77.0.0/24", "dev", "eth0")
	d.wantAdd(target, ips)
	d.must(target, call.VerbDel)
	d.WaitState(t, netip.MustParseAddr("10.77.0.10"), "free")
}

func TestDHCPNamespace(t *testing.T) {
	f := newReal(t, `{"type":"dhcp"}`)
	_, err := f.newInvocation("id")
	wantText(t, err, "plugin dhcp", "the interface eth0", "--cni-netns")
}
