package e2e

import (
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

// loggingDHCP is the real dhcp plugin behind a door that notes each call.
const loggingDHCP = `#!/bin/sh
echo "$CNI_COMMAND" >>"$0.calls"
exec "$0.real"
`

// Trap: dhcp's CHECK of an unknown ID takes a lease, so that it is never called.
func TestRealDHCPVerifiedByADD(t *testing.T) {
	d := harness.NewDHCP(t, "10.77.0.10 10.77.0.12")
	n := dhcpNode(t, d)
	s := n.Start(t, "--enable-ipv6=false", "--cni-netns="+d.NetNS, "--verify-interval=0s")
	held := s.Allocate(t, harness.Request{Owner: "router"})
	lease, err := netip.ParseAddr(held.Address.IPv4)
	if err != nil || !netip.MustParsePrefix("10.77.0.0/24").Contains(lease) || held.IPv4.Gateway != "10.77.0.1" {
		t.Fatalf("answered %+v with %+v; want an address of the server's and its router", held.Address, held.IPv4)
	}
	s.WaitConsistent(t)

	wantDHCPCalls(t, n, "ADD")
	wantAddresses(t, s.Allocate(t, harness.Request{Owner: "router"}).Addresses(), held.Addresses())
	wantDHCPCalls(t, n, "ADD", "ADD")

	s.Release(t, held.Addresses()...)
	wantDHCPCalls(t, n, "ADD", "ADD", "DEL")
	d.WaitState(t, lease, "free")
	s.WaitConsistent(t)
}

// The ADDs by which the address is verified take no second lease.
func TestRealDHCPAfterKill(t *testing.T) {
	d := harness.NewDHCP(t, "10.77.0.10 10.77.0.12")
	n := dhcpNode(t, d)
	n.Flags = []string{"--enable-ipv6=false", "--cni-netns=" + d.NetNS, "--verify-interval=0s"}
	s := n.Start(t)
	held := s.Allocate(t, harness.Request{Owner: "router"}).Addresses()
	s.Kill(t)

	s = n.Start(t)
	wantAddresses(t, s.Allocate(t, harness.Request{Owner: "router"}).Addresses(), held)
	s.WaitConsistent(t)
}

// dhcpNode is a node whose network delegates to the real dhcp plugin. What it
// holds is what the server says.
func dhcpNode(t *testing.T, d *harness.DHCP) *harness.Node {
	t.Helper()
	n := harness.NewNode(t)
	n.InstallPlugin(t, "dhcp")
	plugin := filepath.Join(n.BinDir, "dhcp")
	harness.Must(t, os.Rename(plugin, plugin+".real"))
	n.InstallScript(t, "dhcp", loggingDHCP)
	n.Store = d.Leases
	d.StartDaemon(t, plugin+".real", "-resendtimeout", "6s")
	n.WriteNetwork(t, "05-cilium", harness.Network{
		Name: "pods", CNIVersion: "1.0.0", Plugin: "dhcp", IPAM: map[string]any{"daemonSocketPath": d.Socket},
	})
	return n
}

// wantDHCPCalls compares what the plugin was called for an attachment since it is there.
func wantDHCPCalls(t *testing.T, n *harness.Node, want ...string) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(n.BinDir, "dhcp.calls"))
	harness.Must(t, err)
	got := slices.DeleteFunc(strings.Fields(string(data)), func(verb string) bool { return verb == "VERSION" || verb == "STATUS" })
	if !slices.Equal(got, want) {
		t.Errorf("the plugin was called for %q; want %q", got, want)
	}
}
