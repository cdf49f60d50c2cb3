package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

// staticNode returns a node whose network delegates to the real static, which
// gives the same address to everybody and keeps nothing.
func staticNode(t *testing.T) *harness.Node {
	t.Helper()
	n := harness.NewNode(t)
	n.InstallPlugin(t, "static")
	n.Store = nil
	n.WriteNetwork(t, "05-cilium", harness.Network{Name: "pods", CNIVersion: "1.0.0", Plugin: "static", IPAM: map[string]any{
		"addresses": []map[string]string{{"address": "10.15.0.9/24", "gateway": "10.15.0.1"}},
	}})
	n.Flags = []string{"--enable-ipv6=false"}
	return n
}

func TestStaticSecondOwner(t *testing.T) {
	t.Parallel()
	s := staticNode(t).Start(t)
	first := s.Allocate(t, harness.Request{Owner: "router"})
	if first.Address.IPv4 != "10.15.0.9" || first.IPv4.Gateway != "10.15.0.1" {
		t.Errorf("got %+v; want 10.15.0.9 with its gateway", first.IPv4)
	}
	a := s.TryAllocate(t, harness.Request{Owner: "health"})
	for _, says := range []string{"static", "same addresses", "10.15.0.9", "router", "network of its own"} {
		if a.Status != http.StatusBadGateway || !strings.Contains(string(a.Body), says) {
			t.Errorf("answered %s; want 502 and %q", a, says)
		}
	}
	if s.Attachment(t, "health") != nil {
		t.Errorf("the refused owner is in the list: %+v", s.List(t))
	}
	if c := s.Health(t).DelegatedIPAM.Counters; c["duplicates"] != 0 || c["lost"] != 0 {
		t.Errorf("the counters are %v; want nothing unusual", c)
	}
	if strings.Contains(s.Log(), "level=error") {
		t.Errorf("the log has an error:\n%s", s.Log())
	}
}

func TestStaticConcurrentOwners(t *testing.T) {
	t.Parallel()
	s := staticNode(t).Start(t)
	for round := range 20 {
		requests := []harness.Request{{Owner: fmt.Sprintf("a-%d", round)}, {Owner: fmt.Sprintf("b-%d", round)}}
		served := 0
		for _, a := range s.AllocateConcurrently(t, requests) {
			if a.Status == http.StatusCreated {
				served++
			}
		}
		if list := s.List(t); served != 1 || len(list) != 1 {
			t.Fatalf("in round %d %d owners were served and the list is %+v; want one owner", round, served, list)
		}
		s.Release(t, "10.15.0.9")
	}
}

func TestStaticRestore(t *testing.T) {
	t.Parallel()
	n := staticNode(t)
	s := n.Start(t, "--verify-interval=0s")
	s.TryRestore(t, "10.15.0.77", "router").WantStatus(t, http.StatusOK)
	other := s.Allocate(t, harness.Request{Owner: "health"}).Addresses()
	for _, restart := range []bool{false, true} {
		if restart {
			s.Kill(t)
			s = n.Start(t, "--verify-interval=0s")
		}
		wantAddresses(t, s.Allocate(t, harness.Request{Owner: "router"}).Addresses(), []string{"10.15.0.77"})
		wantAddresses(t, s.Allocate(t, harness.Request{Owner: "health"}).Addresses(), other)
		if c := s.Health(t).DelegatedIPAM.Counters; c["lost"] != 0 || c["reacquired"] != 0 {
			t.Errorf("with restart %t the counters are %v; want nothing lost", restart, c)
		}
	}
	s.Release(t, "10.15.0.77")
	if s.Attachment(t, "router") != nil {
		t.Errorf("after the release the list is %+v", s.List(t))
	}
}
