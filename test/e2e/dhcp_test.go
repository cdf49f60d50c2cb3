package e2e

import (
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

// loggingDHCP logs the verb of each call and executes the real dhcp plugin.
const loggingDHCP = `#!/bin/sh
echo "$CNI_COMMAND" >>"$0.calls"
exec "$0.real"
`

// Trap: dhcp's CHECK of an unknown ID acquires a lease, so it must never be called.
func TestRealDHCPVerifiedByADD(t *testing.T) {
	t.Run("newest", func(t *testing.T) { testDHCPVerifiedByADD(t, "") })
	t.Run(harness.PluginsV19, func(t *testing.T) { testDHCPVerifiedByADD(t, harness.PluginsV19) })
}

func testDHCPVerifiedByADD(t *testing.T, version string) {
	t.Helper()
	d := harness.NewDHCP(t, "10.77.0.10 10.77.0.12")
	n := dhcpNode(t, d, version)
	s := n.Start(t, "--enable-ipv6=false", "--cni-netns="+d.NetNS, "--verify-interval=0s")
	held := s.Allocate(t, harness.Request{Owner: "router"})
	lease, err := netip.ParseAddr(held.Address.IPv4)
	if err != nil || !netip.MustParsePrefix("10.77.0.0/24").Contains(lease) || held.IPv4.Gateway != "10.77.0.1" {
		t.Fatalf("answered %+v with %+v; want an address of the pool and the server as gateway", held.Address, held.IPv4)
	}
	s.WaitConsistent(t)

	wantDHCPCalls(t, n, "ADD")
	wantAddresses(t, s.AllocateFor(t, "router"), held.Addresses())
	wantDHCPCalls(t, n, "ADD", "ADD")
	check.Contains(t, n.Command(t, "doctor").Stdout, "all 1 held addresses are local in "+d.NetNS)

	s.Release(t, held.Addresses()...)
	wantDHCPCalls(t, n, "ADD", "ADD", "DEL")
	d.WaitState(t, lease, "free")
	s.WaitConsistent(t)
}

// The ADDs that verify the address do not acquire a second lease.
func TestRealDHCPAfterKill(t *testing.T) {
	d := harness.NewDHCP(t, "10.77.0.10 10.77.0.12")
	n := dhcpNode(t, d, "")
	n.Flags = []string{"--enable-ipv6=false", "--cni-netns=" + d.NetNS, "--verify-interval=0s"}
	s := n.Start(t)
	held := s.AllocateFor(t, "router")
	s.Kill(t)

	s = n.Start(t)
	wantAddresses(t, s.AllocateFor(t, "router"), held)
	s.WaitConsistent(t)
}

// Trap: the plugin's daemon renews a lease in the namespace of its ADD, as long as the interface exists. So a container that
// is added again in cooldown needs an ADD; otherwise the lease expires, and another container gets the address.
func TestRealDHCPContainerInCooldown(t *testing.T) {
	d := harness.NewDHCP(t, "10.77.0.10; min-lease-time 4; max-lease-time 4")
	n := dhcpNode(t, d, "")
	writeContainers(t, n, map[string]any{"type": "dhcp", "daemonSocketPath": d.Socket})
	s := n.Start(t, "--cni-netns="+d.NetNS, "--release-delay=1h")
	run := func(operation string, c container) {
		t.Helper()
		request := c.request()
		request["netns"] = d.NetNS
		cni(t, s, operation, request).WantStatus(t, http.StatusOK)
	}
	harness.IP(t, "-n", d.Client, "link", "add", "link", "eth0", "name", "pod0", "type", "macvlan")
	first, second := container{"one", "pod0"}, container{"two", "eth0"}
	run("add", first)
	run("del", first)
	wantDHCPCalls(t, n, "ADD")
	run("add", first)
	wantDHCPCalls(t, n, "ADD", "DEL", "ADD")
	run("del", first)
	harness.IP(t, "-n", d.Client, "link", "del", "pod0")
	d.WaitState(t, netip.MustParseAddr("10.77.0.10"), "free")

	run("add", second)
	wantNoAttachment(t, s, first.owner())
	s.WaitConsistent(t)
}

// dhcpNode returns a node whose network delegates to a version of the real dhcp plugin
// (harness.InstallDHCP). Its leases are those in the server's file.
func dhcpNode(t *testing.T, d *harness.DHCP, version string) *harness.Node {
	t.Helper()
	n := harness.NewNode(t)
	n.InstallDHCP(t, version)
	plugin := n.WrapPlugin(t, "dhcp", loggingDHCP)
	n.Store = d.Leases
	d.StartDaemon(t, plugin+".real", "-resendtimeout", "6s")
	n.WriteNetwork(t, "05-cilium", harness.Network{
		Name: "pods", CNIVersion: "1.0.0", Plugin: "dhcp", IPAM: map[string]any{"daemonSocketPath": d.Socket},
	})
	return n
}

// wantDHCPCalls compares the verbs of all calls for an attachment.
func wantDHCPCalls(t *testing.T, n *harness.Node, want ...string) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(n.BinDir, "dhcp.calls"))
	check.Must(t, err)
	got := slices.DeleteFunc(strings.Fields(string(data)), func(verb string) bool { return verb == "VERSION" || verb == "STATUS" })
	if !slices.Equal(got, want) {
		t.Errorf("the plugin was called for %q; want %q", got, want)
	}
}
