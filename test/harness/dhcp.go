package harness

import (
	"errors"
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

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
	"github.com/delegated-ipam/delegated-ipam/test/oracle"
)

// EnvDHCPServer names isc-dhcp-server's dhcpd if it is not in PATH.
const EnvDHCPServer = "DELEGATED_IPAM_TEST_DHCPD"

// DHCP is a real isc-dhcp-server: two network namespaces connected by a veth pair.
// StartDaemon starts the dhcp plugin's daemon.
type DHCP struct {
	// Client is the name of the client's namespace, and NetNS its path. Its interface is eth0.
	Client, NetNS string
	// Socket is the plugin's daemonSocketPath.
	Socket string

	server    string // the server's namespace
	leases    string // the server's lease file
	serverPID int
}

// NewDHCP starts a server whose pool is a range of 10.77.0.8/29 in the syntax of dhcpd.conf(5): one
// address, or the first and the last; further statements may follow. The client's namespace is
// prepared for releases (docs/reference/plugins.md, dhcp). The server is stopped with the test.
// Without dhcpd or network namespaces the test is skipped.
func NewDHCP(t testing.TB, pool string) *DHCP {
	t.Helper()
	d := NewDHCPUnprepared(t, pool)
	IP(t, "netns", "exec", d.Client, "sysctl", "-qw", "net.ipv4.conf.all.arp_ignore=8", "net.ipv4.conf.all.arp_announce=2")
	IP(t, "-n", d.Client, "link", "set", "lo", "up")
	IP(t, "-n", d.Client, "route", "add", "local", "10.77.0.8/29", "dev", "lo")
	IP(t, "-n", d.Client, "route", "add", "10.77.0.0/24", "dev", "eth0")
	return d
}

// NewDHCPUnprepared is NewDHCP without the addresses of the pool in the client's namespace.
func NewDHCPUnprepared(t testing.TB, pool string) *DHCP {
	t.Helper()
	name := os.Getenv(EnvDHCPServer)
	if name == "" {
		name = "dhcpd"
	}
	dhcpd, err := exec.LookPath(name)
	if err != nil {
		Skipf(t, "isc-dhcp-server is missing: %v; install it, or set %s to its dhcpd", err, EnvDHCPServer)
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

// serve starts dhcpd, which daemonizes when it is ready.
func (d *DHCP) serve(t testing.TB, dir, dhcpd, pool string) {
	t.Helper()
	conf, pidFile := filepath.Join(dir, "dhcpd.conf"), filepath.Join(dir, "dhcpd.pid")
	text := "ping-check false;\nauthoritative;\ndefault-lease-time 3600;\n" +
		"subnet 10.77.0.0 netmask 255.255.255.0 { range " + pool + "; option routers 10.77.0.1; }\n"
	for path, data := range map[string]string{conf: text, d.leases: ""} {
		check.Must(t, os.WriteFile(path, []byte(data), 0o644))
	}
	server := exec.Command("ip", "netns", "exec", d.server, dhcpd, "-4", "-q", "-cf", conf, "-lf", d.leases, "-pf", pidFile, "server0")
	if out, err := server.CombinedOutput(); err != nil {
		t.Fatalf("dhcpd: %v: %s", err, out)
	}
	data, err := os.ReadFile(pidFile)
	check.Must(t, err)
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

// InstallDHCP puts a version of the dhcp plugin into BinDir: PluginsV19, or empty for the newest.
func (n *Node) InstallDHCP(t testing.TB, version string) {
	t.Helper()
	if version == "" {
		n.InstallPlugin(t, "dhcp")
		return
	}
	n.install(t, filepath.Join(OldPlugins(t, version), "dhcp"))
}

// StartDaemon starts the plugin's daemon with the given flags. It inherits a listening socket
// (socket activation), so the caller need not wait for it. Its output is logged if the test fails.
func (d *DHCP) StartDaemon(t testing.TB, plugin string, flags ...string) {
	t.Helper()
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: d.Socket, Net: "unix"})
	check.Must(t, err)
	defer listener.Close()
	listener.SetUnlinkOnClose(false)
	socket, err := listener.File()
	check.Must(t, err)
	defer socket.Close()
	// The daemon uses the inherited socket only if LISTEN_PID is its own process ID
	// (sd_listen_fds(3)), which is known only after it has been started.
	args := append([]string{"-c", `LISTEN_PID=$$ LISTEN_FDS=1 exec "$@"`, "sh", plugin, "daemon"}, flags...)
	daemon, out := exec.Command("sh", args...), &lockedBuffer{}
	daemon.ExtraFiles, daemon.Stdout, daemon.Stderr = []*os.File{socket}, out, out
	check.Must(t, daemon.Start())
	t.Cleanup(func() {
		if err := daemon.Process.Kill(); err != nil {
			t.Error(err)
		}
		if err := daemon.Wait(); err == nil {
			t.Error("the daemon ended before it was killed")
		}
		if t.Failed() {
			t.Logf("output of the dhcp daemon:\n%s", out)
		}
	})
}

// Neighbour makes the server's host look for an address by ARP and returns the result, such as
// REACHABLE or FAILED (ip-neighbour(8)).
func (d *DHCP) Neighbour(t testing.TB, addr netip.Addr) string {
	t.Helper()
	IP(t, "netns", "exec", d.server, "bash", "-c", "echo >/dev/udp/"+addr.String()+"/9")
	var state string
	Eventually(t, "ARP for "+addr.String()+" to end", func() error {
		if state = d.NeighbourState(t, addr); state == "INCOMPLETE" {
			return errors.New(state)
		}
		return nil
	})
	return state
}

// NeighbourState returns the state of an address in the ARP table of the server's host; empty if it is
// not there.
func (d *DHCP) NeighbourState(t testing.TB, addr netip.Addr) string {
	t.Helper()
	out, err := exec.Command("ip", "-n", d.server, "neigh", "show", "to", addr.String(), "nud", "all").CombinedOutput()
	check.Must(t, err)
	fields := strings.Fields(string(out))
	if len(fields) == 0 {
		return ""
	}
	return fields[len(fields)-1]
}

// WaitState waits until the server has written a binding state of an address
// (dhcpd.leases(5)): a release is a datagram without a response.
func (d *DHCP) WaitState(t testing.TB, addr netip.Addr, want string) {
	t.Helper()
	Eventually(t, fmt.Sprintf("the binding state of %s to be %s", addr, want), func() error {
		leases, err := d.readLeases()
		if err == nil && leases[addr].state != want {
			err = fmt.Errorf("the binding state is %q", leases[addr].state)
		}
		return err
	})
}

// State returns the last binding state of an address; empty if the server has written none.
func (d *DHCP) State(t testing.TB, addr netip.Addr) string {
	t.Helper()
	leases, err := d.readLeases()
	check.Must(t, err)
	return leases[addr].state
}

// Leases returns the active leases in the server's file, for Node.Store.
func (d *DHCP) Leases() ([]oracle.Lease, error) {
	all, err := d.readLeases()
	if err != nil {
		return nil, err
	}
	var active []oracle.Lease
	for addr, l := range all {
		if l.state != "active" {
			continue
		}
		lease, err := l.lease(addr)
		if err != nil {
			return nil, err
		}
		active = append(active, lease)
	}
	return active, nil
}

// dhcpLease is the last entry of an address in the server's file.
type dhcpLease struct{ state, client string }

// lease parses the client identifier that the plugin's daemon sends: a zero byte, then
// container ID, network and interface.
func (l dhcpLease) lease(addr netip.Addr) (oracle.Lease, error) {
	client, err := strconv.Unquote(l.client)
	parts := strings.Split(strings.TrimPrefix(client, "\x00"), "/")
	if err != nil || len(parts) != 3 {
		return oracle.Lease{}, fmt.Errorf("lease of %s: client identifier %s is not of the dhcp plugin", addr, l.client)
	}
	return oracle.Lease{IP: addr, ContainerID: parts[0], Network: parts[1], Interface: parts[2]}, nil
}

// readLeases parses the server's lease file.
func (d *DHCP) readLeases() (map[netip.Addr]dhcpLease, error) {
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
