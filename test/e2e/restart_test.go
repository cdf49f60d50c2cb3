package e2e

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

func TestRestart(t *testing.T) {
	const owners = 10
	for name, end := range map[string]func(*harness.Daemon, testing.TB){"SIGTERM": (*harness.Daemon).Stop, "SIGKILL": (*harness.Daemon).Kill} {
		t.Run(name, func(t *testing.T) {
			eachNetwork(t, func(t *testing.T, n *harness.Node) {
				s := n.Start(t)
				before := allocateConcurrently(t, s, owners)
				leases := n.Leases(t)
				end(s, t)

				s = n.Start(t)
				if now := harness.Leases(s.List(t)); len(now) != len(leases) {
					t.Errorf("after the restart the list has %v; want the same %d addresses", now, len(leases))
				}
				for i, after := range allocateConcurrently(t, s, owners) {
					wantAddresses(t, after, before[i])
				}
				if now := n.Leases(t); !slices.Equal(now, leases) {
					t.Errorf("the plugin's store was %v and is %v; want no change", leases, now)
				}
			})
		})
	}
}

// allocateConcurrently allocates for that many owners concurrently and returns the addresses of each.
func allocateConcurrently(t *testing.T, s *harness.Daemon, owners int) [][]string {
	t.Helper()
	requests := make([]harness.Request, owners)
	for i := range requests {
		requests[i].Owner = fmt.Sprintf("kube-system/pod-%d", i)
	}
	all := make([][]string, owners)
	for i, a := range s.AllocateConcurrently(t, requests) {
		all[i] = a.Allocation(t).Addresses()
	}
	return all
}

func asJSON(t *testing.T, v any) string {
	t.Helper()
	data, err := json.Marshal(v)
	check.Must(t, err)
	return string(data)
}
