package harness

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/test/oracle"
)

// EnvDHCPServer names isc-dhcp-server's dhcpd where it is not in PATH.
const EnvDHCPServer = "DELEGATED_IPAM_TEST_DHCPD"

// DHCP is a real isc-dhcp-server on the other end of a cable: two network
// namespaces joined by a veth pair. The dhcp plugin's daemon is to be started
// by StartDaemon.
type DHCP struct {
	// Client is the name of the client's namespace, and NetNS its path. Its end
	// of the cable is eth0.
	Client, NetNS string
	// Socket is where the plugin's daemon listens (daemonSocketPath).
	Socket string

	server    string // the server's namespace
	leases    string // the server's file of leases
	serverPID int
}

// NewDHCP starts a server whose pool is a range of 10.77.0.0/24, as dhcpd.conf(5)
// has it: one address, or the first and the last. The test lacks it where dhcpd or network
// namespaces are not to be had. It goes with the test.
func NewDHCP(t testing.TB, pool string) *DHCP {
	t.Helper()
	name := os.Getenv(EnvDHCPServer)
	if name == "" {
		name = "dhcpd"
	}
	dhcpd, err := exec.LookPath(name)
	if err != nil {
		Lack(t, "isc-dhcp-server is not there: %v; install it, or name its dhcpd with %s", err, EnvDHCPServer)
	}
	dir := tempDir(t)
	d := &DHCP{Client: NewNetNS(t), server: NewNetNS(t), Socket: filepath.Join(dir, "dhcp.sock"), leases: filepath.Join(dir, "leases")}
	d.NetNS = NetNSPath(d.Client)
	IP(t, "-n", d.server, "link", "add", "server0", "type", "veth", "peer", "name", "eth0", "netns", d.Client)
	IP(t, "-n", d.server, "addr", "add", "10.77.0.1/24", "dev", "server0")
	IP(t, "-n", d.server, "link", "set", "server0", "up")
	IP(t, "-n", d.Client, "link", "set", "eth0", "up")
	d.serve(t, dir, dhcpd, pool)
	return d
}

// serve starts dhcpd, which goes into the background when it is ready.
func (d *DHCP) serve(t testing.TB, dir, dhcpd, pool string) {
	t.Helper()
	conf, pidFile := filepath.Join(dir, "dhcpd.conf"), filepath.Join(dir, "dhcpd.pid")
	text := "ping-check false;\nauthoritative;\ndefault-lease-time 3600;\n" +
		"subnet 10.77.0.0 netmask 255.255.255.0 { range " + pool + "; option routers 10.77.0.1; }\n"
	for path, data := range map[string]string{conf: text, d.leases: ""} {
		if err := os.WriteFile(path, []byte(data), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	server := exec.Command("ip", "netns", "exec", d.server, dhcpd, "-4", "-q", "-cf", conf, "-lf", d.leases, "-pf", pidFile, "server0")
	if out, err := server.CombinedOutput(); err != nil {
		t.Fatalf("dhcpd: %v: %s", err, out)
	}
	data, err := os.ReadFile(pidFile)
	if err != nil {
		t.Fatal(err)
	}
	if d.serverPID, err = strconv.Atoi(strings.TrimSpace(string(data))); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.SignalServer(t, syscall.SIGTERM) })
}

// SignalServer sends a signal to dhcpd.
func (d *DHCP) SignalServer(t testing.TB, s syscall.Signal) {
	t.Helper()
	if err := syscall.Kill(d.serverPID, s); err != nil {
		t.Error(err)
	}
}

// StartDaemon starts the plugin's daemon, with flags of its own, on a socket
// that is open already, so that nobody has to wait for it. What it wrote is
// shown when the test fails.
func (d *DHCP) StartDaemon(t testing.TB, plugin string, flags ...string) {
	t.Helper()
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: d.Socket, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	listener.SetUnlinkOnClose(false)
	socket, err := listener.File()
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	// The daemon takes a socket for its own only if LISTEN_PID is its process
	// (sd_listen_fds(3)), which nobody knows before it is there.
	args := append([]string{"-c", `LISTEN_PID=$$ LISTEN_FDS=1 exec "$@"`, "sh", plugin, "daemon"}, flags...)
	daemon, out := exec.Command("sh", args...), &output{}
	daemon.ExtraFiles, daemon.Stdout, daemon.Stderr = []*os.File{socket}, out, out
	if err := daemon.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := daemon.Process.Kill(); err != nil {
			t.Error(err)
		}
		if err := daemon.Wait(); err == nil {
			t.Error("the daemon ended by itself, want it killed")
		}
		if t.Failed() {
			t.Logf("output of the dhcp daemon:\n%s", out)
		}
	})
}

// WaitState waits until the server has written a binding state of an address
// (dhcpd.leases(5)): a release is a datagram that nobody answers.
func (d *DHCP) WaitState(t testing.TB, addr netip.Addr, want string) {
	t.Helper()
	Eventually(t, fmt.Sprintf("the server to say that %s is %s", addr, want), func() error {
		leases, err := d.read()
		if err == nil && leases[addr].state != want {
			err = fmt.Errorf("it says %q", leases[addr].state)
		}
		return err
	})
}

// State returns the last binding state that the server wrote of an address;
// empty if there is none.
func (d *DHCP) State(t testing.TB, addr netip.Addr) string {
	t.Helper()
	leases, err := d.read()
	if err != nil {
		t.Fatal(err)
	}
	return leases[addr].state
}

// Leases returns the leases that are active by the server's own file, for
// Node.Store.
func (d *DHCP) Leases() ([]oracle.Lease, error) {
	all, err := d.read()
	if err != nil {
		return nil, err
	}
	var active []oracle.Lease
	for addr, l := range all {
		if l.state != "active" {
			continue
		}
		lease, err := l.of(addr)
		if err != nil {
			return nil, err
		}
		active = append(active, lease)
	}
	return active, nil
}

// dhcpLease is what the server's file says of an address: its last word counts.
type dhcpLease struct{ state, client string }

// of reads the client identifier that the plugin's daemon sends: a zero byte,
// then container ID, network and interface.
func (l dhcpLease) of(addr netip.Addr) (oracle.Lease, error) {
	client, err := strconv.Unquote(l.client)
	parts := strings.Split(strings.TrimPrefix(client, "\x00"), "/")
	if err != nil || len(parts) != 3 {
		return oracle.Lease{}, fmt.Errorf("the server's lease of %s has the client identifier %s, which is none of the dhcp plugin", addr, l.client)
	}
	return oracle.Lease{IP: addr, ContainerID: parts[0], Network: parts[1], Interface: parts[2]}, nil
}

// read reads the server's file of leases.
func (d *DHCP) read() (map[netip.Addr]dhcpLease, error) {
	data, err := os.ReadFile(d.leases)
	if err != nil {
		return nil, err
	}
	leases := map[netip.Addr]dhcpLease{}
	var addr netip.Addr
	for line := range strings.Lines(string(data)) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		value = strings.TrimSuffix(value, ";")
		lease := leases[addr]
		switch {
		case key == "lease":
			if addr, err = netip.ParseAddr(strings.TrimSuffix(value, " {")); err != nil {
				return nil, err
			}
			lease = dhcpLease{}
		case key == "binding":
			lease.state = strings.TrimPrefix(value, "state ")
		case key == "uid":
			lease.client = value
		default:
			continue
		}
		leases[addr] = lease
	}
	return leases, nil
}
