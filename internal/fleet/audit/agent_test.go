package audit

import (
	"net/netip"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/delegated-ipam/delegated-ipam/internal/bridge/ciliumnode"
	"github.com/delegated-ipam/delegated-ipam/internal/bridge/planner"
)

func TestAgentSilent(t *testing.T) {
	now := time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
	marked := func(n *ciliumnode.Node, age time.Duration) *ciliumnode.Node {
		at := metav1.NewTime(now.Add(-age))
		n.Status.IPAM.ReleaseIPs = map[string]planner.Handshake{"0.0.0.0": planner.MarkedForRelease, "10.0.0.9": planner.DoNotRelease}
		n.Metadata.ManagedFields = []metav1.ManagedFieldsEntry{{Subresource: "status", Time: &at}, {Time: &metav1.Time{Time: now}}}
		return n
	}
	worker := func(used ...string) *ciliumnode.Node {
		return newNode("a", []string{"10.0.0.1", "10.0.0.2 eni-1"}, used)
	}
	old, young := now.Add(-time.Hour), now.Add(-time.Minute)
	for name, tt := range map[string]struct {
		node *ciliumnode.Node
		pod  PodAddress
		want string
	}{
		"reported":             {worker("10.0.0.1 x/p"), PodAddress{"x/p", "a", netip.MustParseAddr("10.0.0.1"), old, false}, ""},
		"not reported":         {worker(), PodAddress{"x/p", "a", netip.MustParseAddr("10.0.0.1"), old, false}, "1 addresses of pods are in the pool and not reported as used: x/p (10.0.0.1)"},
		"not reported yet":     {worker(), PodAddress{"x/p", "a", netip.MustParseAddr("10.0.0.1"), young, false}, ""},
		"of another node":      {worker(), PodAddress{"x/p", "b", netip.MustParseAddr("10.0.0.1"), old, false}, ""},
		"of another component": {worker(), PodAddress{"x/p", "a", netip.MustParseAddr("10.0.0.2"), old, false}, ""},
		"not in the pool":      {worker(), PodAddress{"x/p", "a", netip.MustParseAddr("10.0.0.3"), old, false}, ""},
		"marked an hour ago":   {marked(worker(), time.Hour), PodAddress{}, "1 release marks are unanswered since 2026-11-23T11:00:00Z"},
		"marked a minute ago":  {marked(worker(), time.Minute), PodAddress{}, ""},
		"answered an hour ago": {func() *ciliumnode.Node {
			n := marked(worker(), time.Hour)
			delete(n.Status.IPAM.ReleaseIPs, "0.0.0.0")
			return n
		}(), PodAddress{}, ""},
		"marked, and not listed": {marked(worker(), time.Hour), PodAddress{"x/p", "a", netip.MustParseAddr("10.0.0.1"), old, false}, "1 release marks are unanswered since 2026-11-23T11:00:00Z; 1 addresses of pods are in the pool and not reported as used: x/p (10.0.0.1)"},
	} {
		t.Run(name, func(t *testing.T) {
			c := NewCluster()
			c.Now = now
			addAll(c, []*ciliumnode.Node{tt.node})
			if tt.pod.Pod != "" {
				c.PodAddresses = []PodAddress{tt.pod}
			}
			if tt.want != "" {
				tt.want = "agent-not-responding a : " + tt.want
			}
			if got := findings(t, c); got != tt.want {
				t.Errorf("found %q; want %q", got, tt.want)
			}
		})
	}
}
