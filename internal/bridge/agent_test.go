package bridge

import (
	"testing"
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/bridge/planner"
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
				f.node.Spec.IPAM.Pool[ip(9).String()] = planner.EntryOf(8, true)
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
					between(t, "is the metric", m.silent.age(), length-time.Minute, length)
					f.update(func() { tt.end(f) })
					advance(time.Minute)
					between(t, "is the metric after the end", m.silent.age(), 0, time.Minute)
					f.wantEvent(t, "AgentNotResponding", length > 6*time.Minute)
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
			f.node.Spec.IPAM.Pool[ip(5).String()] = planner.EntryOf(4, true)
			f.node.Status.IPAM.ReleaseIPs[ip(5).String()] = "marked-for-release"
		})
		advance(minAgentLimit - time.Second)
		before := f.count(&f.patches)
		for _, want := range []int{2, 4} {
			advance(minAgentLimit)
			between(t, "writes", f.count(&f.patches)-before, want, want)
		}
		between(t, "handshakes", len(f.node.Status.IPAM.ReleaseIPs), 1, 1)
		f.wantEvent(t, "AgentNotResponding", true)
	})
}

// While the API server is unavailable, the agent cannot write.
func TestSilentAgentOutage(t *testing.T) {
	f := newFixture()
	runController(t, f, smallSettings(), func(t *testing.T, m *metrics) {
		waitForPool(t, f)
		f.update(func() { f.pods, f.podIPs[ip(2)] = 1, true })
		advance(4 * time.Minute)
		f.apiAway(true)
		advance(10 * time.Minute)
		f.apiAway(false)
		advance(4 * time.Minute)
		f.wantEvent(t, "AgentNotResponding", false)
	})
}

// After etcd was restored, the version of the CiliumNode is older than the last write.
func TestRestoredEtcd(t *testing.T) {
	f := newFixture()
	f.hold(4)
	runController(t, f, smallSettings(), func(t *testing.T, m *metrics) {
		f.setUsed(firstIPs(4)...)
		advance(time.Minute)
		f.mu.Lock()
		f.version = 0
		f.mu.Unlock()
		f.setUsed(ip(1))
		advance(2 * resync)
		wantMetric(t, m.used, 1)
	})
}

// An answer that the bridge has not asked for may be of a restored etcd: the agent, which ignores an older version,
// may allocate the address to the next pod.
//
//evidence:design/reliability etcd is restored to a release that ended long ago
func TestUnaskedAnswer(t *testing.T) {
	for name, restored := range map[string]bool{"restored": true, "before the first observation": false} {
		t.Run(name, func(t *testing.T) {
			f := newFixture()
			f.hold(5)
			answer := func() {
				f.agentSilent = true
				f.node.Spec.IPAM.Pool[ip(5).String()] = planner.EntryOf(4, true)
				f.node.Status.IPAM.ReleaseIPs[ip(5).String()] = planner.ReadyForRelease
			}
			if !restored {
				answer()
			}
			runController(t, f, smallSettings(), func(t *testing.T, _ *metrics) {
				if restored {
					f.apiAway(true)
					advance(time.Minute)
					f.update(answer)
					f.apiAway(false)
				}
				advance(10 * drainDelay)
				between(t, "DELETEs", f.count(&f.releases), 0, 0)
				// An agent that follows its CiliumNode answers again.
				f.update(func() { f.agentSilent, f.node.Status.IPAM.ReleaseIPs = false, map[string]planner.Handshake{} })
				advance(10 * drainDelay)
				between(t, "DELETEs", f.count(&f.releases), 1, 1)
			})
		})
	}
}

// The CiliumNode of a restored etcd has an answer of the agent from before a pod got the address again.
//
//evidence:design/reliability etcd is restored to a release that ended long ago
func TestRestoredAnswer(t *testing.T) {
	for name, withdrawn := range map[string]bool{"ready": false, "withdrawn": true} {
		t.Run(name, func(t *testing.T) {
			f := newFixture()
			f.hold(5)
			f.agentSilent, f.podsPending = true, true // the agent ignores an older version
			f.node.Spec.IPAM.Pool[ip(5).String()] = planner.EntryOf(4, true)
			f.node.Status.IPAM.ReleaseIPs[ip(5).String()] = planner.ReadyForRelease
			if withdrawn {
				delete(f.node.Spec.IPAM.Pool, ip(5).String())
			}
			runController(t, f, smallSettings(), func(t *testing.T, _ *metrics) {
				advance(10 * time.Second)
				f.update(func() { f.podsPending, f.pods, f.podIPs[ip(5)] = false, 1, true })
				advance(drainDelay)
				between(t, "DELETEs", f.count(&f.releases), 0, 0)
				f.wantInPool(t, ip(5).String(), true)
			})
		})
	}
}
