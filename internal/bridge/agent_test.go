package bridge

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
)

// An agent that does not follow its CiliumNode, as after etcd was restored.
func TestSilentAgent(t *testing.T) {
	for name, tt := range map[string]struct {
		begin, end func(f *fixture)
	}{
		"mark": {
			func(f *fixture) {
				f.agentSilent = true
				f.node.Status.IPAM.ReleaseIPs["0.0.0.0"] = "marked-for-release"
				f.hold(9) // an excess, so that the ping stays
				entry := f.node.Spec.IPAM.Pool[ip(9).String()]
				entry.Owner = "delegated-ipam:suspended"
				f.node.Spec.IPAM.Pool[ip(9).String()] = entry
			},
			func(f *fixture) { f.agentSilent, f.node.Status.IPAM.ReleaseIPs["0.0.0.0"] = false, "do-not-release" },
		},
		"pod": {
			func(f *fixture) { f.pods, f.podIPs[ip(2)] = 1, true },
			func(f *fixture) { f.node.Status.IPAM.Used[ip(2).String()] = f.node.Spec.IPAM.Pool[ip(2).String()] },
		},
	} {
		for _, length := range []time.Duration{4 * time.Minute, 10 * time.Minute} {
			t.Run(name+", "+length.String(), func(t *testing.T) {
				f := newFixture()
				runController(t, f, smallSettings(), func(t *testing.T, m *metrics) {
					waitForPool(t, f)
					f.update(func() { tt.begin(f) })
					advance(length)
					if got := m.silent.age(); got < length-time.Minute || got > length {
						t.Errorf("the metric is %s; want about %s", got, length)
					}
					f.update(func() { tt.end(f) })
					advance(time.Minute)
					if got := m.silent.age(); got > time.Minute {
						t.Errorf("the metric is %s after the end", got)
					}
					if got := slices.Contains(f.eventReasons(), "AgentNotResponding"); got != (length > 6*time.Minute) {
						t.Errorf("after %s the Events are %v", length, f.eventReasons())
					}
				})
			})
		}
	}
}

// An agent that starts may overlook a mark until the CiliumNode changes: by a ping and its end, once in each
// limit.
func TestOverlookedMark(t *testing.T) {
	f := newFixture()
	runController(t, f, smallSettings(), func(t *testing.T, _ *metrics) {
		waitForPool(t, f)
		f.update(func() {
			f.agentSilent = true
			f.hold(5)
			entry := f.node.Spec.IPAM.Pool[ip(5).String()]
			entry.Owner = "delegated-ipam:suspended"
			f.node.Spec.IPAM.Pool[ip(5).String()], f.node.Status.IPAM.ReleaseIPs[ip(5).String()] = entry, "marked-for-release"
		})
		advance(minAgentLimit - time.Second)
		before := f.count(&f.patches)
		for _, want := range []int{2, 4} {
			advance(minAgentLimit)
			if n := f.count(&f.patches) - before; n != want {
				t.Errorf("%d writes; want %d", n, want)
			}
		}
		if got := f.node.Status.IPAM.ReleaseIPs; len(got) != 1 || !slices.Contains(f.eventReasons(), "AgentNotResponding") {
			t.Errorf("the handshakes are %v, the Events %v; want the mark and AgentNotResponding", got, f.eventReasons())
		}
	})
}

// While the API server is unavailable, the agent cannot write.
func TestSilentAgentOutage(t *testing.T) {
	f := newFixture()
	runController(t, f, smallSettings(), func(t *testing.T, m *metrics) {
		waitForPool(t, f)
		f.update(func() { f.pods, f.podIPs[ip(2)] = 1, true })
		advance(4 * time.Minute)
		f.update(func() { f.apiErr, f.watchDown = errors.New("away"), true })
		advance(10 * time.Minute)
		f.update(func() { f.apiErr, f.watchDown = nil, false })
		advance(4 * time.Minute)
		if got := f.eventReasons(); slices.Contains(got, "AgentNotResponding") {
			t.Errorf("the Events are %v", got)
		}
	})
}

// After etcd was restored, the version of the CiliumNode is older than the last write.
func TestRestoredEtcd(t *testing.T) {
	f := newFixture()
	f.hold(4)
	runController(t, f, smallSettings(), func(t *testing.T, m *metrics) {
		f.setUsed(ip(1), ip(2), ip(3), ip(4))
		advance(time.Minute)
		f.mu.Lock()
		f.version = 0
		f.mu.Unlock()
		f.setUsed(ip(1))
		advance(2 * resync)
		if got := testutil.ToFloat64(m.used); got != 1 {
			t.Errorf("%v addresses are used; want 1, as in the restored CiliumNode", got)
		}
	})
}
