package agent

import (
	"syscall"
	"testing"
	"time"

	"github.com/delegated-ipam/delegated-ipam/test/cluster"
)

// A monitor that detects nothing would make a faulty bridge pass. The test also shows that an agent
// drops an endpoint without an address in the pool at its start.
func TestMonitorDetectsLoss(t *testing.T) {
	tb := newTestbed(t, ipv4Only(), shortDelays())
	tb.sidecar.MustStart(t)
	tb.bridge.MustStart(t)
	tb.waitHealthy(t, tb.agent.MustStart(t))
	tracker := newPodTracker()
	kept, lost := &pod{name: "kept"}, &pod{name: "lost"}
	for _, p := range []*pod{kept, lost} {
		must(t, tb.addPod(t.Context(), p))
		tracker.added(p)
	}
	m := &monitor{testbed: tb, tracker: tracker, grace: 15 * time.Second}
	cluster.MustEventually(t, "both pods to be ready", time.Minute, func() error { return m.checkPods(t.Context(), tracker.runningPods()) })

	cluster.MustEventually(t, "the records to agree", time.Minute, func() error { return tb.checkConsistent(t, len(tracker.runningPods())) })
	tb.bridge.End(syscall.SIGKILL) // it would add the address again
	must(t, tb.kube.unpublish(t.Context(), lost.ips[0]))
	b, err := tb.nodeState(t.Context())
	must(t, err)
	if b.CheckUsedInPool() == nil {
		t.Error("a used address was removed from the pool, which was not detected")
	}
	tb.agent.End(syscall.SIGKILL)
	m.followAgent(t.Context(), tb.agent.MustStart(t))
	if broken := tracker.violationList(); len(broken) != 1 {
		t.Errorf("the agent lost one pod; the monitor found %q", broken)
	}
	if err := m.checkPods(t.Context(), []running{{kept.name, kept.ips}}); err != nil {
		t.Errorf("the other pod: %v", err)
	}
	tracker.added(&pod{name: "other", ips: kept.ips})
	if broken := tracker.violationList(); len(broken) != 2 {
		t.Errorf("two pods have an address; the tracker found %q", broken)
	}
}
