package e2e

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

func TestRestart(t *testing.T) {
	for name, end := range map[string]func(*harness.Sidecar, testing.TB){"SIGTERM": (*harness.Sidecar).Stop, "SIGKILL": (*harness.Sidecar).Kill} {
		t.Run(name, func(t *testing.T) {
			eachNetwork(t, func(t *testing.T, n *harness.Node) { wantAddressesAfterRestart(t, n, end) })
		})
	}
}

func wantAddressesAfterRestart(t *testing.T, n *harness.Node, end func(*harness.Sidecar, testing.TB)) {
	t.Helper()
	const owners = 10
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
}

func TestRecordQuarantined(t *testing.T) {
	t.Parallel()
	n := nodeWith(t, harness.DualStack())
	s := n.Start(t)
	s.AllocateFor(t, "router")
	health := s.AllocateFor(t, "health")
	damaged := s.Attachment(t, "router").ContainerID
	s.Stop(t)
	n.DamageRecord(t, damaged)

	s = n.Start(t)
	if got := s.Health(t).DelegatedIPAM.Quarantined; len(got) != 1 || got[0].Reason == "" {
		t.Errorf("health has the quarantined records %+v; want one with a reason", got)
	}
	if got := sum(scrape(t, s), "delegated_ipam_quarantined_records"); got != 1 {
		t.Errorf("the metric counts %v quarantined records; want 1, as in health", got)
	}
	wantAddresses(t, s.AllocateFor(t, "health"), health)
	// The addresses of the damaged record are unknown: a DEL of its container ID comes first.
	s.AllocateFor(t, "router")
	wantLeaseCount(t, n, 4)
}

func asJSON(t *testing.T, v any) string {
	t.Helper()
	data, err := json.Marshal(v)
	harness.Must(t, err)
	return string(data)
}
