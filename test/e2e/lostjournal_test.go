package e2e

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/test/harness"
	"github.com/delegated-ipam/delegated-ipam/test/oracle"
)

func TestLostJournal(t *testing.T) {
	t.Parallel()
	restore := func(t *testing.T, s *harness.Sidecar, ip string) {
		s.TryRestore(t, ip, "router").WantStatus(t, http.StatusOK)
	}
	allocate := func(t *testing.T, s *harness.Sidecar, family string) {
		s.TryAllocate(t, harness.Request{Owner: "router", Family: family}).WantStatus(t, http.StatusCreated)
	}
	for name, ask := range map[string]func(t *testing.T, s *harness.Sidecar, ipv4, ipv6 string){
		"it restores IPv4, then IPv6": func(t *testing.T, s *harness.Sidecar, ipv4, ipv6 string) {
			restore(t, s, ipv4)
			restore(t, s, ipv6)
		},
		"it restores IPv6, then IPv4": func(t *testing.T, s *harness.Sidecar, ipv4, ipv6 string) {
			restore(t, s, ipv6)
			restore(t, s, ipv4)
		},
		"it restores IPv4 and allocates IPv6": func(t *testing.T, s *harness.Sidecar, ipv4, _ string) {
			restore(t, s, ipv4)
			allocate(t, s, "ipv6")
		},
		"it allocates both":            func(t *testing.T, s *harness.Sidecar, _, _ string) { allocate(t, s, "") },
		"it allocates IPv4, then IPv6": func(t *testing.T, s *harness.Sidecar, _, _ string) { allocate(t, s, "ipv4"); allocate(t, s, "ipv6") },
		"it allocates IPv6, then IPv4": func(t *testing.T, s *harness.Sidecar, _, _ string) { allocate(t, s, "ipv6"); allocate(t, s, "ipv4") },
		"it allocates IPv4 and restores IPv6": func(t *testing.T, s *harness.Sidecar, _, ipv6 string) {
			allocate(t, s, "ipv4")
			restore(t, s, ipv6)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := nodeWith(t, harness.DualStack())
			s := n.Start(t)
			held := s.Allocate(t, harness.Request{Owner: "router"}).Addresses()
			// What host-local gives next is not what it gave to the router.
			s.Release(t, s.Allocate(t, harness.Request{Owner: "health"}).Addresses()...)
			before := n.Leases(t)
			s.Kill(t)
			n.WipeJournal(t)

			s = n.Start(t)
			ask(t, s, held[0], held[1])
			wantAddresses(t, s.Allocate(t, harness.Request{Owner: "router"}).Addresses(), held)
			if now := n.Leases(t); !slices.Equal(now, before) {
				t.Errorf("the plugin's store was %v and is %v; want no change", before, now)
			}
		})
	}
}

func TestLostJournalQueuedDEL(t *testing.T) {
	t.Parallel()
	n, server := azureNode(t)
	s := n.Start(t)
	first := s.Allocate(t, harness.Request{Owner: "router"}).Addresses()
	server.StopDaemon(t)
	s.Release(t, first...)
	if got := server.Queued(t); got == 0 {
		t.Fatal("no DEL waits for the daemon, so nothing is shown")
	}
	s.Kill(t)
	n.WipeJournal(t)
	server.StartDaemon(t)

	s = n.Start(t)
	held := s.Allocate(t, harness.Request{Owner: "router"}).Addresses() // the DEL is carried out behind this ADD
	if got := server.Queued(t); got != 0 {
		t.Fatalf("%d DELs still wait, so nothing is shown", got)
	}
	wantNoPodGets(t, server, held)
}

func TestLostJournalNewContainerID(t *testing.T) {
	t.Parallel()
	n, server := azureNode(t)
	s := n.Start(t)
	s.Allocate(t, harness.Request{Owner: "router"})
	used := containerIDs(t, server)
	s.Kill(t)
	n.WipeJournal(t)

	s = n.Start(t)
	held := s.Allocate(t, harness.Request{Owner: "router"}).Addresses()
	id := s.Attachment(t, "router").ContainerID
	wantNoPodGets(t, server, held)
	now := containerIDs(t, server)
	if slices.Contains(slices.Collect(maps.Values(used)), now[held[0]]) {
		t.Errorf("%s is held under the container ID %s, on which a DEL of the lost journal may be queued", held[0], now[held[0]])
	}
	for ip, left := range used {
		if now[ip] != left {
			t.Errorf("the store has %v; want the lease of %s, which was left behind, beside that of %s", now, left, id)
		}
	}
	n.Store = nil // it holds what no list can have
}

// azureNode is a node whose plugin queues a DEL while its daemon is down.
func azureNode(t *testing.T) (*harness.Node, harness.Central) {
	t.Helper()
	n := harness.NewNode(t)
	network := harness.Network{Name: "pods", CNIVersion: "1.0.0", Plugin: "azure-ipam", IPAM: map[string]any{"subnet": "10.15.0.0/24"}}
	plugin := n.InstallScripted(t, network.Plugin)
	n.WriteNetwork(t, "05-cilium", network)
	n.Flags = []string{"--enable-ipv6=false"}
	n.Store = func() ([]oracle.Lease, error) {
		leases, err := plugin.LeasesByStableID(network.Name)
		for i := range leases {
			leases[i].Interface = "eth0" // it is keyed by the container ID alone, and notes a pod
		}
		return leases, err
	}
	return n, harness.Central{Scripted: plugin, Network: network, Pods: n.PodsOf(t, network)}
}

// containerIDs are the container IDs of the sidecar in the server's store, by address.
func containerIDs(t *testing.T, server harness.Central) map[string]string {
	t.Helper()
	leases, err := server.Leases(server.Network.Name)
	harness.Must(t, err)
	ids := map[string]string{}
	for _, l := range leases {
		if strings.HasPrefix(l.ContainerID, "cilium-agent-") {
			ids[l.IP.String()] = l.ContainerID
		}
	}
	return ids
}

// wantNoPodGets wants what is held to be in the server's store, and none of
// several pods to get it.
func wantNoPodGets(t *testing.T, server harness.Central, held []string) {
	t.Helper()
	stored := server.Holds(t)
	for _, ip := range held {
		if !slices.Contains(stored, ip) {
			t.Errorf("%s is held, and the server holds %q only", ip, stored)
		}
	}
	for i := range 3 {
		for _, ip := range server.Pods.Add(t, fmt.Sprintf("pod-%d", i)) {
			if slices.Contains(held, ip) {
				t.Errorf("a pod was given %s, which is held", ip)
			}
		}
	}
}
