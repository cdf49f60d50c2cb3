package agent

import (
	"fmt"
	"net/netip"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/delegated-ipam/delegated-ipam/test/cluster"
)

const (
	manyPods    = 40
	deletedPods = 30
)

// shortDelays are the delays of tests that neither kill programs at random nor start many pods at the same time.
func shortDelays() delays { return delays{update: time.Second, release: 3 * time.Second} }

// agentOwners returns the owners of the agent's own addresses.
func agentOwners() []string { return []string{"router", "health", "ingress"} }

func TestAgentLifecycle(t *testing.T) { testLifecycle(t, ipv4Only()) }

func TestAgentLifecycleDualStack(t *testing.T) { testLifecycle(t, dualStack()) }

func testLifecycle(t *testing.T, nw network) {
	tb := newTestbed(t, nw, shortDelays())
	begin := time.Now()
	tb.sidecar.MustStart(t)
	tb.bridge.MustStart(t)
	tb.waitHealthy(t, tb.agent.MustStart(t))
	tb.record(t, "from the first start to a healthy agent", time.Since(begin))

	tb.checkAgentAddresses(t)
	tb.checkStatus(t)
	started := tb.startPods(t)
	tb.checkPodLeases(t, started)
	tb.checkConnectivity(t, started)
	tb.checkExcessReleased(t, started)
	tb.checkEndsOnSIGTERM(t, tb.bridge, tb.sidecar)
}

// checkAgentAddresses waits until the agent has addresses of host-local for router, health and ingress.
func (tb *testbed) checkAgentAddresses(t *testing.T) {
	t.Helper()
	cluster.MustEventually(t, "the agent to have its own addresses", time.Minute, func() error {
		b, err := tb.nodeState(t.Context())
		if err != nil {
			return err
		}
		for _, owner := range agentOwners() {
			ips := b.UsedBy(owner)
			if len(ips) != tb.families() {
				return fmt.Errorf("the agent's %s has %v; want %d", owner, ips, tb.families())
			}
			for _, ip := range ips {
				if !b.Store[ip] {
					return fmt.Errorf("%s of the agent's %s has no lease of host-local", ip, owner)
				}
			}
		}
		return b.CheckConsistent(len(agentOwners()) * tb.families())
	})
}

// checkStatus wants "cilium-dbg status" to show the addresses and their owners.
func (tb *testbed) checkStatus(t *testing.T) {
	t.Helper()
	b, err := tb.nodeState(t.Context())
	must(t, err)
	out, err := exec.Command(tb.bin("cilium-dbg"), "status", "--verbose").CombinedOutput()
	if err != nil {
		t.Fatalf("cilium-dbg status: %v: %s", err, out)
	}
	for _, owner := range agentOwners() {
		for _, ip := range b.UsedBy(owner) {
			if want := fmt.Sprintf("%s (%s)", ip, owner); !strings.Contains(string(out), want) {
				t.Errorf("cilium-dbg status does not show %q:\n%s", want, out)
			}
		}
	}
	for line := range strings.Lines(string(out)) {
		if strings.HasPrefix(line, "IPAM:") {
			tb.record(t, "`cilium-dbg status`, IPAM", strings.Trim(strings.TrimPrefix(line, "IPAM:"), " ,\t\n"))
		}
	}
}

// startPods starts pods sequentially; each runs a server.
func (tb *testbed) startPods(t *testing.T) []*pod {
	t.Helper()
	var started []*pod
	var took []time.Duration
	begin := time.Now()
	for n := range manyPods {
		p := &pod{name: fmt.Sprintf("p%d", n)}
		one := time.Now()
		// The kubelet also tries again when the pool is temporarily exhausted.
		cluster.MustEventually(t, p.name+" to start", time.Minute, func() error {
			err := tb.addPod(t.Context(), p)
			if err != nil {
				t.Logf("%s: %v", p.name, err)
				must(t, tb.dropPod(t.Context(), p))
			}
			return err
		})
		took = append(took, time.Since(one))
		started = append(started, p)
	}
	tb.record(t, fmt.Sprintf("%d pods started sequentially", manyPods), time.Since(begin))
	tb.record(t, "start of one pod", cluster.MedianAndMax(took))
	return started
}

// checkPodLeases wants the addresses of pods to be distinct and leased by host-local.
func (tb *testbed) checkPodLeases(t *testing.T, started []*pod) {
	t.Helper()
	store, err := tb.hostLocalLeases()
	must(t, err)
	holder := map[netip.Addr]string{}
	for _, p := range started {
		for _, ip := range p.ips {
			if other, taken := holder[ip]; taken {
				t.Errorf("%s belongs to %s and %s", ip, other, p.name)
			}
			holder[ip] = p.name
			if !store[ip] {
				t.Errorf("%s of %s has no lease of host-local", ip, p.name)
			}
		}
	}
	if want := manyPods * tb.families(); len(holder) != want {
		t.Errorf("the pods have %d different addresses; want %d", len(holder), want)
	}
	tb.record(t, "distinct addresses of pods, each leased by host-local", len(holder))
}

// checkConnectivity connects node to pod, pod to pod, and node to health.
func (tb *testbed) checkConnectivity(t *testing.T, started []*pod) {
	t.Helper()
	connections := 0
	try := func(what string, ask func() error) {
		cluster.MustEventually(t, what, time.Minute, ask)
		connections++
	}
	for n, p := range started {
		try("node to "+p.name, func() error { return checkReachable(t.Context(), p.name, p.ips) })
		next := started[(n+1)%len(started)]
		try(p.name+" to "+next.name, func() error { return next.checkReachableFrom(t.Context(), p) })
	}
	b, err := tb.nodeState(t.Context())
	must(t, err)
	for _, ip := range b.UsedBy("health") {
		try("node to health", func() error { return checkHealthReachable(t.Context(), ip) })
	}
	tb.record(t, "connections (node to pod, pod to pod, node to health)", connections)
}

// checkExcessReleased deletes pods, whose addresses must be released down to the watermark while the
// other pods stay reachable.
func (tb *testbed) checkExcessReleased(t *testing.T, started []*pod) {
	t.Helper()
	cluster.MustEventually(t, "the records to agree before pods are deleted", 2*time.Minute, func() error { return tb.checkConsistent(t, manyPods) })
	before, err := tb.hostLocalLeases()
	must(t, err)
	begin := time.Now()
	for _, p := range started[:deletedPods] {
		must(t, tb.dropPod(t.Context(), p))
		must(t, tb.kube.deletePod(t.Context(), p.name))
	}
	cluster.MustEventually(t, "the pool to be back at the watermark", 30*time.Minute, func() error { return tb.checkConsistent(t, manyPods-deletedPods) })
	took := time.Since(begin)
	after, err := tb.nodeState(t.Context())
	must(t, err)
	if !tb.dual && len(before)-len(after.Store) != deletedPods {
		t.Errorf("host-local had %d leases and now %d; want %d fewer", len(before), len(after.Store), deletedPods)
	}
	tb.record(t, fmt.Sprintf("addresses in host-local with %d pods, and after %d were deleted", manyPods, deletedPods), fmt.Sprintf("%d, %d", len(before), len(after.Store)))
	tb.record(t, "time for that, with --excess-ip-release-delay="+shortDelays().release.String(), took)
	for _, p := range started[deletedPods:] {
		cluster.MustEventually(t, "node to "+p.name, time.Minute, func() error { return checkReachable(t.Context(), p.name, p.ips) })
	}
}

// checkConsistent returns nil if the records agree for that many pods.
func (tb *testbed) checkConsistent(t *testing.T, pods int) error {
	b, err := tb.nodeState(t.Context())
	if err != nil {
		return err
	}
	used := (len(agentOwners()) + pods) * tb.families()
	if tb.slots > 0 {
		return b.CheckAtRest(used, tb.slots)
	}
	return b.CheckConsistent(used)
}

// checkEndsOnSIGTERM wants programs to end with status 0 on SIGTERM.
func (tb *testbed) checkEndsOnSIGTERM(t *testing.T, programs ...*cluster.Program) {
	t.Helper()
	for _, p := range programs {
		p.End(syscall.SIGTERM)
		if state := p.Current().State(); state.ExitCode() != 0 {
			t.Errorf("after SIGTERM %s ended with %s; want status 0", p.Name(), state)
		}
	}
}
