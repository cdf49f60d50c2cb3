package e2e

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/test/harness"
	"github.com/delegated-ipam/delegated-ipam/test/oracle"
)

// Each step names a request for one family, or for both.
func TestLostJournal(t *testing.T) {
	t.Parallel()
	for _, steps := range []string{
		"restore ipv4, restore ipv6", "restore ipv6, restore ipv4", "restore ipv4, allocate ipv6", "allocate ipv4, restore ipv6",
		"allocate ipv4, allocate ipv6", "allocate ipv6, allocate ipv4", "allocate ",
	} {
		t.Run(steps, func(t *testing.T) {
			t.Parallel()
			n := nodeWith(t, harness.DualStack())
			s := n.Start(t)
			held := s.AllocateFor(t, "router")
			// So that host-local would allocate another address next.
			s.Release(t, s.AllocateFor(t, "health")...)
			before := n.Leases(t)
			s.Kill(t)
			n.WipeJournal(t)

			s = n.Start(t)
			for step := range strings.SplitSeq(steps, ", ") {
				verb, family, _ := strings.Cut(step, " ")
				if verb == "allocate" {
					s.Allocate(t, harness.Request{Owner: "router", Family: family})
					continue
				}
				ip := map[string]string{"ipv4": held[0], "ipv6": held[1]}[family]
				s.TryRestore(t, ip, "router").WantStatus(t, http.StatusOK)
			}
			wantAddresses(t, s.AllocateFor(t, "router"), held)
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
	first := s.AllocateFor(t, "router")
	server.StopDaemon(t)
	s.Release(t, first...)
	if got := server.Queued(t); got == 0 {
		t.Fatal("no DEL is queued; the test proves nothing")
	}
	s.Kill(t)
	n.WipeJournal(t)
	server.StartDaemon(t)

	s = n.Start(t)
	held := s.AllocateFor(t, "router") // the queued DEL is executed after this ADD
	if got := server.Queued(t); got != 0 {
		t.Fatalf("%d DELs are still queued; the test proves nothing", got)
	}
	wantNoPodGets(t, server, held)
}

// azureNode returns a node whose plugin queues DELs while its daemon is down.
func azureNode(t *testing.T) (*harness.Node, harness.Central) {
	t.Helper()
	n := harness.NewNode(t)
	server := n.InstallServer(t, "azure-ipam", nil)
	stored := n.Store
	n.Store = func() ([]oracle.Lease, error) {
		leases, err := stored()
		for i := range leases {
			leases[i].Interface = "eth0" // its store is keyed by the container ID only
		}
		return leases, err
	}
	return n, server
}

// A request that fails changes nothing, and the release of one family keeps the other one.
func TestLostJournalKeepsAll(t *testing.T) {
	t.Parallel()
	n := nodeWith(t, harness.DualStack())
	s := n.Start(t)
	held, health := s.AllocateFor(t, "router"), s.AllocateFor(t, "health")
	for name, ip := range map[string]string{"of another owner": health[0], "outside of the range": "192.168.77.7"} {
		s.Kill(t)
		n.WipeJournal(t)
		s = n.Start(t)
		t.Log("restore of an address", name)
		s.TryRestore(t, ip, "router").WantError(t, http.StatusInternalServerError, "holds", held[0], ip)
		wantLeased(t, n, held...)
	}
	s.TryAllocate(t, harness.Request{Owner: "health", Family: "ipv4"}).WantStatus(t, http.StatusCreated)
	s.Release(t, health[0])
	wantLeased(t, n, health[1])
	wantAddresses(t, s.AllocateFor(t, "router"), held)
}
