package e2e

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

// staticNode returns a node whose network delegates to the real static plugin, which returns the
// same address for every ADD and has no store.
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
