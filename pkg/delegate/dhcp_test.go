package delegate

import (
	"encoding/json"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/delegated-ipam/delegated-ipam/pkg/delegate/call"
	"github.com/delegated-ipam/delegated-ipam/pkg/delegate/profile"
)

// dhcpServer names isc-dhcp-server's dhcpd where it is not in PATH.
const dhcpServer = "DELEGATED_IPAM_TEST_DHCPD"

// dhcpBench is the real dhcp plugin with its daemon, and a real isc-dhcp-server
// on the other end of a cable: two network namespaces joined by a veth pair.
type dhcpBench struct {
	*bench
	leases         string // the server's file of leases
	serverPID      int
	client, server string // names of namespaces
}

func newDHCPBench(t *testing.T) *dhcpBench {
	t.Helper()
	dhcpd := os.Getenv(dhcpServer)
	if dhcpd == "" {
		dhcpd = "dhcpd"
	}
	dhcpd, err := exec.LookPath(dhcpd)
	if err != nil {
		t.Skipf("isc-dhcp-server is not there: %v; install it, or name its dhcpd with %s", err, dhcpServer)
	}
	dir := t.TempDir()
	d := &dhcpBench{leases: filepath.Join(dir, "leases"), client: namespaceFor(t, "c"), server: namespaceFor(t, "s")}
	d.bench = realBench(t, `{"type":"dhcp","daemonSocketPath":"DIR/dhcp.sock"}`, `{}`, func(o *Options) {
		o.NetNS = filepath.Join("/run/netns", d.client)
	})
	ip(t, "-n", d.server, "link", "add", "server0", "type", "veth", "peer", "name", "eth0", "netns", d.client)
	ip(t, "-n", d.server, "addr", "add", "10.77.0.1/24", "dev", "server0")
	ip(t, "-n", d.server, "link", "set", "server0", "up")
	ip(t, "-n", d.client, "link", "set", "eth0", "up")
	d.serve(dir, dhcpd)
	d.daemon()
	return d
}

// namespaceFor makes a network namespace that goes with the test.
func namespaceFor(t *testing.T, role string) string {
	t.Helper()
	name := "delegated-ipam-" + strconv.Itoa(os.Getpid()) + role
	if out, err := exec.Command("ip", "netns", "add", name).CombinedOutput(); err != nil {
		t.Skipf("network namespaces cannot be made here: %v: %s", err, out)
	}
	t.Cleanup(func() { ip(t, "netns", "del", name) })
	return name
}

func ip(t *testing.T, args ...string) {
	t.Helper()
	if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
		t.Errorf("ip %s: %v: %s", strings.Join(args, " "), err, out)
	}
}

// serve starts dhcpd, which goes into the background when it is ready.
func (d *dhcpBench) serve(dir, dhcpd string) {
	d.t.Helper()
	conf, pidFile := filepath.Join(dir, "dhcpd.conf"), filepath.Join(dir, "dhcpd.pid")
	const text = "ping-check false;\nauthoritative;\ndefault-lease-time 3600;\n" +
		"subnet 10.77.0.0 netmask 255.255.255.0 { range 10.77.0.10 10.77.0.12; option routers 10.77.0.1; }\n"
	for path, data := range map[string]string{conf: text, d.leases: ""} {
		if err := os.WriteFile(path, []byte(data), 0o644); err != nil {
			d.t.Fatal(err)
		}
	}
	server := exec.Command("ip", "netns", "exec", d.server, dhcpd, "-4", "-q", "-cf", conf, "-lf", d.leases, "-pf", pidFile, "server0")
	if out, err := server.CombinedOutput(); err != nil {
		d.t.Fatalf("dhcpd: %v: %s", err, out)
	}
	data, err := os.ReadFile(pidFile)
	if err != nil {
		d.t.Fatal(err)
	}
	if d.serverPID, err = strconv.Atoi(strings.TrimSpace(string(data))); err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(func() { d.signal(unix.SIGTERM) })
}

// signal sends a signal to dhcpd.
func (d *dhcpBench) signal(sig unix.Signal) {
	d.t.Helper()
	if err := unix.Kill(d.serverPID, sig); err != nil {
		d.t.Error(err)
	}
}

// daemon starts the plugin's daemon on a socket that is open already, so that
// nobody has to wait for it.
func (d *dhcpBench) daemon() {
	d.t.Helper()
	listener, err := net.Listen("unix", filepath.Join(d.scripts, "dhcp.sock"))
	if err != nil {
		d.t.Fatal(err)
	}
	defer listener.Close()
	listener.(*net.UnixListener).SetUnlinkOnClose(false)
	socket, err := listener.(*net.UnixListener).File()
	if err != nil {
		d.t.Fatal(err)
	}
	defer socket.Close()
	daemon := exec.Command("sh", "-c", `LISTEN_PID=$$ LISTEN_FDS=1 exec "$0" daemon -timeout 3s -resendtimeout 6s`, filepath.Join(d.bin, "dhcp"))
	daemon.ExtraFiles = []*os.File{socket}
	if err := daemon.Start(); err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(func() {
		if err := daemon.Process.Signal(unix.SIGKILL); err != nil {
			d.t.Error(err)
		}
		if err := daemon.Wait(); err == nil {
			d.t.Error("the daemon ended by itself, want it killed")
		}
	})
}

// state returns the last binding state that the server wrote of an address.
func (d *dhcpBench) state(addr netip.Addr) string {
	d.t.Helper()
	data, err := os.ReadFile(d.leases)
	if err != nil {
		d.t.Fatal(err)
	}
	state := ""
	for _, lease := range strings.Split(string(data), "lease "+addr.String()+" {")[1:] {
		lease, _, _ = strings.Cut(lease, "}")
		for line := range strings.Lines(lease) {
			if s, ok := strings.CutPrefix(strings.TrimSpace(line), "binding state "); ok {
				state = strings.TrimSuffix(s, ";")
			}
		}
	}
	return state
}

// becomes waits until the server has written a state: a release is a datagram
// that nobody answers.
func (d *dhcpBench) becomes(addr netip.Addr, want string) {
	d.t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for d.state(addr) != want {
		<-tick.C
	}
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
	d.becomes(lease, "active")
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
	d.becomes(lease, "free")
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
	if got := d.state(netip.MustParseAddr("10.77.0.10")); got != "active" {
		t.Errorf("the server says that its first address is %q, want the lease that CHECK has taken", got)
	}
	if got := target.Context.Profile.VerifyBy; got != profile.VerifyAdd {
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

	target.Context.Profile.Requests, target.Context.Profile.RequestForm = []profile.Request{profile.RequestCNIArgs}, profile.FormAddress
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
	d.signal(unix.SIGSTOP)
	d.runner.opts.Timeout = 200 * time.Millisecond
	wantError(t, d.run(call.VerbAdd, target), call.Unclear, "--plugin-timeout")
	d.signal(unix.SIGCONT)
	d.becomes(netip.MustParseAddr("10.77.0.10"), "active")
	if got := target.Context.Profile.AddOutlives(); got != 208*time.Second {
		t.Errorf("the profile says that an ADD outlives its process by %s, want the 208 s of the daemon", got)
	}
}

// Trap: CHECK or ADD hang when the interface is gone.
func TestTheRealDHCPHangsWhenTheInterfaceIsGoneSoOurLimitEndsTheCall(t *testing.T) {
	d := newDHCPBench(t)
	target := d.call("id")
	d.add(target)
	ip(t, "-n", d.client, "link", "del", "eth0")
	d.must(call.VerbAdd, target) // answered from memory; only then does the daemon look
	d.runner.opts.Timeout = 300 * time.Millisecond
	for _, verb := range []string{call.VerbAdd, call.VerbCheck} {
		wantError(t, d.run(verb, target), call.Unclear, "--plugin-timeout")
	}
}

func TestDHCPWantsANamespaceThatLasts(t *testing.T) {
	for name, netns := range map[string]string{"none is named": "", "an ephemeral one": EphemeralNetNS} {
		t.Run(name, func(t *testing.T) {
			b := realBench(t, `{"type":"dhcp"}`, `{}`, func(o *Options) { o.NetNS = netns })
			_, err := b.runner.Context(t.Context(), b.network, "id", "owner")
			wantText(t, err, "plugin dhcp", "the interface eth0 in it", "--cni-netns")
		})
	}
}

// Trap: dhcp with a missing ipam key dies of SIGSEGV, exit 2, empty stdout.
func TestTheRealDHCPWithoutAnIPAMKeyDiesOfSIGSEGVWhichIsUnclear(t *testing.T) {
	b := realBench(t, `{"type":"dhcp"}`, `{}`, func(o *Options) { o.NetNS = DefaultNetNS })
	target := b.call("id")
	target.Context.Config = json.RawMessage(`{"cniVersion":"1.1.0","name":"net"}`)
	e := wantError(t, b.run(call.VerbAdd, target), call.Unclear, "exit status 2 without a word on stdout")
	if !strings.Contains(e.Stderr, "goroutine") {
		t.Errorf("got stderr %q, want the end of a Go crash", e.Stderr)
	}
}
