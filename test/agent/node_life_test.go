package agent

import (
	"fmt"
	"net/netip"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

const (
	manyPods    = 40
	deletedPods = 30
	// shortRest is --excess-ip-release-delay where nothing is killed.
	shortRest = 3 * time.Second
)

// ownOwners is what the agent calls itself for its own addresses.
func ownOwners() []string { return []string{"router", "health", "ingress"} }

func TestAgentLifecycle(t *testing.T)          { liveOnTheBridge(t, ipv4Only()) }
func TestAgentLifecycleDualStack(t *testing.T) { liveOnTheBridge(t, dualStack()) }

func liveOnTheBridge(t *testing.T, nw network) {
	l := newLab(t, nw, shortRest)
	begin := time.Now()
	l.sidecar.mustStart(t)
	l.bridge.mustStart(t)
	l.mustServe(t, l.agent.mustStart(t))
	l.figure(t, "from nothing to an agent that is well", time.Since(begin))

	l.agentHasItsOwn(t)
	l.statusShowsThem(t)
	started := l.startPods(t)
	l.everyPodIsHeld(t, started)
	l.everybodyIsReached(t, started)
	l.excessGoesBack(t, started)
	l.sigtermEnds(t)
}

// agentHasItsOwn: the agent has router, health and ingress from host-local.
func (l *lab) agentHasItsOwn(t *testing.T) {
	t.Helper()
	mustEventually(t, "the agent to have its own addresses", time.Minute, func() error {
		b, err := l.books(t.Context())
		if err != nil {
			return err
		}
		for _, owner := range ownOwners() {
			ips := b.of(owner)
			if len(ips) != l.families() {
				return fmt.Errorf("the agent's %s has %v; want %d", owner, ips, l.families())
			}
			for _, ip := range ips {
				if !b.store[ip] {
					return fmt.Errorf("%s of the agent's %s is not held by host-local", ip, owner)
				}
			}
		}
		return b.settledWith(len(ownOwners()) * l.families())
	})
}

// statusShowsThem: "cilium-dbg status" names the addresses and their owners.
func (l *lab) statusShowsThem(t *testing.T) {
	t.Helper()
	b, err := l.books(t.Context())
	must(t, err)
	out, err := exec.Command(l.bin("cilium-dbg"), "status", "--verbose").CombinedOutput()
	if err != nil {
		t.Fatalf("cilium-dbg status: %v: %s", err, out)
	}
	for _, owner := range ownOwners() {
		for _, ip := range b.of(owner) {
			if want := fmt.Sprintf("%s (%s)", ip, owner); !strings.Contains(string(out), want) {
				t.Errorf("cilium-dbg status does not show %q:\n%s", want, out)
			}
		}
	}
	for line := range strings.Lines(string(out)) {
		if strings.HasPrefix(line, "IPAM:") {
			l.figure(t, "`cilium-dbg status`, IPAM", strings.Trim(strings.TrimPrefix(line, "IPAM:"), " ,\t\n"))
		}
	}
}

// startPods starts pods one after the other; each has a server in it.
func (l *lab) startPods(t *testing.T) []*pod {
	t.Helper()
	var started []*pod
	var took []time.Duration
	begin := time.Now()
	for n := range manyPods {
		p := &pod{name: fmt.Sprintf("p%d", n)}
		one := time.Now()
		// kubelet tries again too, when the pool has run out for the moment.
		mustEventually(t, p.name+" to start", time.Minute, func() error {
			err := l.addPod(t.Context(), p)
			if err != nil {
				t.Logf("%s: %v", p.name, err)
				must(t, l.dropPod(t.Context(), p))
			}
			return err
		})
		took = append(took, time.Since(one))
		started = append(started, p)
	}
	l.figure(t, fmt.Sprintf("%d pods started one after the other", manyPods), time.Since(begin))
	l.figure(t, "start of one pod", quantiles(took))
	return started
}

// everyPodIsHeld: all addresses differ, and host-local holds each.
func (l *lab) everyPodIsHeld(t *testing.T, started []*pod) {
	t.Helper()
	store, err := l.store()
	must(t, err)
	holder := map[netip.Addr]string{}
	for _, p := range started {
		for _, ip := range p.ips {
			if other, taken := holder[ip]; taken {
				t.Errorf("%s is of %s and of %s", ip, other, p.name)
			}
			holder[ip] = p.name
			if !store[ip] {
				t.Errorf("%s of %s is not held by host-local", ip, p.name)
			}
		}
	}
	if want := manyPods * l.families(); len(holder) != want {
		t.Errorf("the pods have %d different addresses; want %d", len(holder), want)
	}
	l.figure(t, "different addresses of pods, each held by host-local", len(holder))
}

// everybodyIsReached: node to pod, pod to pod, node to health.
func (l *lab) everybodyIsReached(t *testing.T, started []*pod) {
	t.Helper()
	connections := 0
	try := func(what string, ask func() error) {
		mustEventually(t, what, time.Minute, ask)
		connections++
	}
	for n, p := range started {
		try("node to "+p.name, func() error { return reach(t.Context(), p.name, p.ips) })
		next := started[(n+1)%len(started)]
		try(p.name+" to "+next.name, func() error { return next.reachFrom(t.Context(), p) })
	}
	b, err := l.books(t.Context())
	must(t, err)
	for _, ip := range b.of("health") {
		try("node to health", func() error { return reachHealth(t.Context(), ip) })
	}
	l.figure(t, "connections that worked (node to pod, pod to pod, node to health)", connections)
}

// excessGoesBack: what deleted pods had returns to host-local, down to the
// watermark, and the others go on.
func (l *lab) excessGoesBack(t *testing.T, started []*pod) {
	t.Helper()
	mustEventually(t, "the books to agree before pods are deleted", 2*time.Minute, func() error { return l.settledWith(t, manyPods) })
	before, err := l.store()
	must(t, err)
	begin := time.Now()
	for _, p := range started[:deletedPods] {
		must(t, l.dropPod(t.Context(), p))
		must(t, l.kube.deletePod(t.Context(), p.name))
	}
	mustEventually(t, "the pool to be back at the watermark", 30*time.Minute, func() error { return l.settledWith(t, manyPods-deletedPods) })
	took := time.Since(begin)
	after, err := l.books(t.Context())
	must(t, err)
	if !l.dual && len(before)-len(after.store) != deletedPods {
		t.Errorf("host-local held %d addresses and now %d; want %d fewer", len(before), len(after.store), deletedPods)
	}
	l.figure(t, fmt.Sprintf("addresses in host-local with %d pods, and after %d were deleted", manyPods, deletedPods), fmt.Sprintf("%d, %d", len(before), len(after.store)))
	l.figure(t, "time for that, with --excess-ip-release-delay="+shortRest.String(), took)
	for _, p := range started[deletedPods:] {
		mustEventually(t, "node to "+p.name, time.Minute, func() error { return reach(t.Context(), p.name, p.ips) })
	}
}

// settledWith is nil if the books agree with so many pods.
func (l *lab) settledWith(t *testing.T, pods int) error {
	b, err := l.books(t.Context())
	if err != nil {
		return err
	}
	return b.settledWith((len(ownOwners()) + pods) * l.families())
}

// sigtermEnds: the bridge and the sidecar end on SIGTERM, with status 0.
func (l *lab) sigtermEnds(t *testing.T) {
	t.Helper()
	for _, p := range []*program{l.bridge, l.sidecar} {
		p.end(syscall.SIGTERM)
		if state := p.life.cmd.ProcessState; state.ExitCode() != 0 {
			t.Errorf("after SIGTERM %s ended with %s; want status 0", p.name, state)
		}
	}
}
