package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

func TestARestartBySIGTERMKeepsEveryAddress(t *testing.T) {
	eachNetwork(t, func(t *testing.T, n *harness.Node) {
		keepsEveryAddress(t, n, (*harness.Sidecar).Stop)
	})
}

func TestARestartBySIGKILLKeepsEveryAddress(t *testing.T) {
	eachNetwork(t, func(t *testing.T, n *harness.Node) {
		keepsEveryAddress(t, n, (*harness.Sidecar).Kill)
	})
}

func keepsEveryAddress(t *testing.T, n *harness.Node, end func(*harness.Sidecar, testing.TB)) {
	t.Helper()
	const owners = 10
	s := n.Start(t)
	before := allocateConcurrently(t, s, owners)
	leases := n.Leases(t)
	end(s, t)

	s = n.Start(t)
	if now := harness.Leases(s.List(t)); len(now) != len(leases) {
		t.Errorf("after the restart the list has %v; want the %d addresses from before", now, len(leases))
	}
	for i, after := range allocateConcurrently(t, s, owners) {
		wantAddresses(t, after, before[i])
	}
	if now := n.Leases(t); !slices.Equal(now, leases) {
		t.Errorf("the plugin's store was %v and is %v; want no change", leases, now)
	}
}

func TestLostJournalRestore(t *testing.T) {
	eachNetwork(t, func(t *testing.T, n *harness.Node) {
		s := n.Start(t)
		s.Allocate(t, harness.Request{Owner: "health"})
		held := s.Allocate(t, harness.Request{Owner: "router"})
		s.Stop(t)
		n.WipeJournal(t)

		s = n.Start(t)
		s.TryRestore(t, held.Address.IPv4, "router").WantStatus(t, http.StatusOK)
		s.TryRestore(t, held.Address.IPv4, "router").WantStatus(t, http.StatusOK)

		now := s.Allocate(t, harness.Request{Owner: "router"})
		if now.Address.IPv4 != held.Address.IPv4 {
			t.Errorf("after the restore the owner has %s; want %s", now.Address.IPv4, held.Address.IPv4)
		}
		wantLeased(t, n, now.Addresses()...)
		// "health" was forgotten with the journal; by its name it finds its lease again.
		s.Allocate(t, harness.Request{Owner: "health"})
	})
}

func TestLostJournalRestoreIPv6(t *testing.T) {
	t.Parallel()
	n := nodeWith(t, harness.DualStack())
	s := n.Start(t)
	held := s.Allocate(t, harness.Request{Owner: "router"})
	s.Stop(t)
	n.WipeJournal(t)

	s = n.Start(t)
	s.TryRestore(t, held.Address.IPv6, "router").WantStatus(t, http.StatusOK)
	now := s.Allocate(t, harness.Request{Owner: "router"})
	if now.Address.IPv6 != held.Address.IPv6 {
		t.Errorf("after the restore the owner has %s; want %s", now.Address.IPv6, held.Address.IPv6)
	}
	wantLeased(t, n, now.Addresses()...)
}

func TestLostJournalAllocate(t *testing.T) {
	eachNetwork(t, func(t *testing.T, n *harness.Node) {
		s := n.Start(t)
		before := s.Allocate(t, harness.Request{Owner: "router"}).Addresses()
		s.Kill(t)
		n.WipeJournal(t)

		s = n.Start(t)
		now := s.Allocate(t, harness.Request{Owner: "router"}).Addresses()
		wantLeases(t, n, len(before))
		wantLeased(t, n, now...)
	})
}

func TestLostStoreWhileServing(t *testing.T) {
	eachNetwork(t, func(t *testing.T, n *harness.Node) {
		s := n.Start(t, "--verify-interval=0s")
		held := s.Allocate(t, harness.Request{Owner: "router"}).Addresses()
		n.WipeStore(t)

		now := s.Allocate(t, harness.Request{Owner: "router"}).Addresses()
		wantAddresses(t, now, held)
		wantLeased(t, n, held...)
	})
}

func TestLostStoreWhileStopped(t *testing.T) {
	eachNetwork(t, func(t *testing.T, n *harness.Node) {
		s := n.Start(t)
		held := map[string][]string{}
		for _, owner := range []string{"router", "health", "ingress"} {
			held[owner] = s.Allocate(t, harness.Request{Owner: owner}).Addresses()
		}
		s.Stop(t)
		n.WipeStore(t)

		s = n.Start(t)
		s.WaitConsistent(t)
		for owner, want := range held {
			wantLeased(t, n, want...)
			wantAddresses(t, s.Allocate(t, harness.Request{Owner: owner}).Addresses(), want)
		}
	})
}

func TestRecordQuarantined(t *testing.T) {
	t.Parallel()
	n := nodeWith(t, harness.DualStack())
	s := n.Start(t)
	s.Allocate(t, harness.Request{Owner: "router"})
	health := s.Allocate(t, harness.Request{Owner: "health"}).Addresses()
	damaged := s.Attachment(t, "router").ContainerID
	s.Stop(t)
	n.DamageRecord(t, damaged)

	s = n.Start(t)
	if got := s.Health(t).DelegatedIPAM.Quarantined; len(got) != 1 || got[0].Reason == "" {
		t.Errorf("health reports the quarantined records %+v; want one with a reason", got)
	}
	if got := sum(scrape(t, s), "delegated_ipam_quarantined_records"); got != 1 {
		t.Errorf("the metric counts %v quarantined records; want the one that health reports", got)
	}
	wantAddresses(t, s.Allocate(t, harness.Request{Owner: "health"}).Addresses(), health)
	// Nobody knows what the damaged one held, so its ID is freed before it is used again.
	s.Allocate(t, harness.Request{Owner: "router"})
	wantLeases(t, n, 4)
}

func TestHealthAllocations(t *testing.T) {
	t.Parallel()
	n := nodeWith(t, harness.DualStack())
	s := n.Start(t)
	want := map[string]string{}
	for i := range 3 {
		owner := fmt.Sprintf("owner-%d", i)
		for _, ip := range s.Allocate(t, harness.Request{Owner: owner}).Addresses() {
			want[ip] = owner
		}
	}
	got, wanted := asJSON(t, s.Health(t).IPAM.Allocations), asJSON(t, want)
	if got != wanted {
		t.Errorf("healthz shows allocations %s; want %s", got, wanted)
	}
}

func asJSON(t *testing.T, v any) string {
	t.Helper()
	data, err := json.Marshal(v)
	harness.Must(t, err)
	return string(data)
}

// wantLeased fails the test for each address that the plugin does not hold.
func wantLeased(t *testing.T, n *harness.Node, ips ...string) {
	t.Helper()
	held := map[string]bool{}
	for _, l := range n.Leases(t) {
		held[l.IP.String()] = true
	}
	for _, ip := range ips {
		if !held[ip] {
			t.Errorf("the plugin's store does not hold %s; it holds %v", ip, n.Leases(t))
		}
	}
}
