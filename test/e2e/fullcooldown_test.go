package e2e

import (
	"fmt"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

// A range that is full ends the oldest cooldown: each Spark job of a small range ends with its addresses in
// cooldown.
//
//evidence:design/reliability every address of the range is in cooldown
func TestFullRangeEndsCooldowns(t *testing.T) {
	t.Parallel()
	n := harness.NewNode(t)
	nw := harness.IPv4Only()
	nw.Subnets = []string{"10.15.0.0/29"}
	pods := n.PodsThrough(t, "10-pods", nw)
	n.Flags = []string{"--enable-ipv6=false", "--release-delay=1h"}
	s := n.Start(t)
	last := ""
	for i := range 7 {
		last = fmt.Sprintf("spark-pi-exec-%d", i+1)
		pods.Add(t, last)
		call(t, pods, "DEL", last)
	}
	wantState(t, s, "cni/"+last+"/eth0", "cooldown")
	wantLeaseCount(t, n, 5) // the whole range
	router := s.AllocateFor(t, "router")
	s.Release(t, router...)
	wantState(t, s, "router", "cooldown")
	for i := range 5 { // pods end owners' cooldowns, too
		pods.Add(t, fmt.Sprintf("pod-%d", i))
	}
	wantNoAttachment(t, s, "router")
	if _, err := pods.TryAdd("one-too-many"); err == nil {
		t.Error("the ADD of a full range succeeded")
	}
	wantLeaseCount(t, n, 5)
}
