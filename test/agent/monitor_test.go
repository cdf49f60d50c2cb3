package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
	"github.com/delegated-ipam/delegated-ipam/test/ciliumagent"
	"github.com/delegated-ipam/delegated-ipam/test/cluster"
)

// monitor adds and deletes pods, tracks those that run, and collects violations of the invariants. A pod
// runs from the success of its ADD until the start of its DEL, and must keep its addresses for that time.
type monitor struct {
	*testbed
	// grace is how long a healthy agent may take to restore its endpoints. A dropped endpoint
	// never returns.
	grace time.Duration
	// retryPause returns the pause between two attempts of a pod.
	retryPause func() time.Duration
	// followers are the running calls of followAgent.
	followers sync.WaitGroup

	mu         sync.Mutex
	pods       map[string]running
	violations []string
	// refused counts the ADDs that failed for want of an address, failed all failures by their verb.
	refused int
	failed  map[string]int
	took    []time.Duration
	// restored has the durations of the restarts of the agent after which every running pod was found.
	restored []time.Duration
	// comparisons counts the comparisons of the records.
	comparisons int
}

type running struct {
	name string
	ips  []netip.Addr
}

func newMonitor(tb *testbed) *monitor {
	return &monitor{
		testbed: tb, grace: time.Minute, retryPause: func() time.Duration { return time.Second },
		pods: map[string]running{}, failed: map[string]int{},
	}
}

// startMonitor returns a monitor whose violations fail the test at its end, however it ends.
func startMonitor(t *testing.T, tb *testbed) *monitor {
	t.Helper()
	m := newMonitor(tb)
	t.Cleanup(func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		for _, v := range m.violations {
			t.Error(v)
		}
	})
	return m
}

func (m *monitor) added(p *pod) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, other := range m.pods {
		for _, ip := range p.ips {
			if slices.Contains(other.ips, ip) {
				m.violations = append(m.violations, fmt.Sprintf("%s was allocated to pod %s while pod %s has it", ip, p.name, other.name))
			}
		}
	}
	m.pods[p.name] = running{p.name, slices.Clone(p.ips)}
}

func (m *monitor) addViolation(format string, args ...any) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.violations = append(m.violations, fmt.Sprintf(format, args...))
}

func (m *monitor) runningPods() []running {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Collect(maps.Values(m.pods))
}

// stillRunning returns the pods that have run since.
func (m *monitor) stillRunning(some []running) []running {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(some), func(r running) bool {
		_, runs := m.pods[r.name] // names are not reused
		return !runs
	})
}

func (m *monitor) mustAdd(t *testing.T, name string) *pod {
	t.Helper()
	p := &pod{name: name}
	check.Must(t, m.addPod(t.Context(), p))
	m.added(p)
	return p
}

// add tries until the pod runs, as the kubelet does: it deletes the sandbox of a failed attempt, and the
// next one has a new one. It returns false if ctx ends before; then the pod is deleted: the bridge
// would keep an address for it.
func (m *monitor) add(ctx context.Context, p *pod) bool {
	begin := time.Now()
	for ctx.Err() == nil {
		// An attempt is not cancelled, because its outcome must be known.
		err := m.addPod(context.WithoutCancel(ctx), p)
		if err == nil {
			m.added(p)
			m.mu.Lock()
			defer m.mu.Unlock()
			m.took = append(m.took, time.Since(begin))
			return true
		}
		m.countFailure("ADD", err)
		m.deleteSandbox(p)
		_ = cluster.Sleep(ctx, m.retryPause())
	}
	m.mustDelete(p)
	return false
}

func (m *monitor) drop(p *pod) {
	m.mu.Lock()
	delete(m.pods, p.name)
	m.mu.Unlock()
	m.deleteSandbox(p)
	m.mustDelete(p)
}

func (m *monitor) mustDelete(p *pod) {
	for m.deletePod(context.Background(), p.name) != nil {
		time.Sleep(m.retryPause())
	}
}

func (m *monitor) deleteSandbox(p *pod) {
	for err := m.dropPod(context.Background(), p); err != nil; err = m.dropPod(context.Background(), p) {
		m.countFailure("DEL", err)
		time.Sleep(m.retryPause())
	}
}

func (m *monitor) countFailure(verb string, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.failed[verb]++
	if strings.Contains(err.Error(), "unable to allocate IP via local cilium agent") {
		m.refused++
	}
	m.agent.Note(fmt.Sprintf("attempt failed: %v", err))
}

// followAgent follows a process of the agent: when it is healthy, it must have every endpoint that
// existed before, and each pod must be reachable. A process that ends earlier is not checked.
func (m *monitor) followAgent(ctx context.Context, now *cluster.Process) {
	before, begin := m.runningPods(), time.Now()
	for agentAPI().Healthy(ctx) != nil {
		if !now.Running() || cluster.Sleep(ctx, 200*time.Millisecond) != nil {
			return
		}
	}
	err := cluster.Eventually(ctx, m.grace, func() error {
		if !now.Running() {
			return nil
		}
		return m.checkPods(ctx, m.stillRunning(before))
	})
	switch {
	case ctx.Err() != nil || !now.Running():
	case err != nil:
		m.addViolation("after a restart of the agent: %v", err)
	default:
		m.mu.Lock()
		defer m.mu.Unlock()
		m.restored = append(m.restored, time.Since(begin))
	}
}

// checkPods returns nil if the agent has a ready endpoint with its addresses for each pod, no address
// belongs to two endpoints, and every pod is reachable.
func (m *monitor) checkPods(ctx context.Context, wanted []running) error {
	list, err := agentAPI().Endpoints(ctx)
	if err != nil {
		return err
	}
	m.checkShared(list)
	has := map[netip.Addr]ciliumagent.Endpoint{}
	for _, e := range list {
		for _, ip := range e.IPs {
			has[ip] = e
		}
	}
	var errs []error
	for _, r := range wanted {
		if e := has[r.ips[0]]; e.State != "ready" || !slices.Equal(sorted(e.IPs), sorted(r.ips)) {
			errs = append(errs, fmt.Errorf("no ready endpoint of %s with %v; the agent has %+v", r.name, r.ips, e))
		} else {
			errs = append(errs, checkReachable(ctx, r.name, r.ips))
		}
	}
	// A pod may have been deleted since.
	if again := m.stillRunning(wanted); errors.Join(errs...) != nil && len(again) < len(wanted) {
		return m.checkPods(ctx, again)
	}
	return errors.Join(errs...)
}

func (m *monitor) waitPods(t *testing.T, limit time.Duration) {
	t.Helper()
	if err := cluster.Eventually(t.Context(), limit, func() error { return m.checkPods(t.Context(), m.runningPods()) }); err != nil {
		t.Errorf("not all pods run: %v", err)
	}
}

func (m *monitor) checkShared(list []ciliumagent.Endpoint) {
	if err := ciliumagent.SharedAddresses(list); err != nil {
		m.addViolation("%v", err)
	}
}

func sorted(ips []netip.Addr) []netip.Addr {
	return slices.SortedFunc(slices.Values(ips), netip.Addr.Compare)
}

// watchState compares the records whenever all of them can be read.
func (m *monitor) watchState(ctx context.Context) {
	for ; ctx.Err() == nil; _ = cluster.Sleep(ctx, time.Second) {
		before, err := m.nodeState(ctx)
		if err != nil {
			continue // the API server is down
		}
		after, err := m.nodeState(ctx)
		if err != nil {
			continue
		}
		if err := before.CheckUsedInPool(); err != nil {
			m.addViolation("%v", err)
		}
		for ip := range before.Pool {
			// An address is released after its withdrawal, so it may have left the store in between.
			if _, published := after.Pool[ip]; published && !before.Store[ip] && !after.Store[ip] {
				m.addViolation("%s was in the pool without a lease of host-local", ip)
			}
		}
		m.comparisons++
	}
}

func (m *monitor) watchEndpoints(ctx context.Context) {
	for ; ctx.Err() == nil; _ = cluster.Sleep(ctx, time.Second) {
		if list, err := agentAPI().Endpoints(ctx); err == nil {
			m.checkShared(list)
		}
	}
}

// A monitor that detects nothing would make a faulty bridge pass. The test also shows that an agent
// drops an endpoint without an address in the pool at its start.
func TestMonitorDetectsLoss(t *testing.T) {
	tb := newTestbed(t, ipv4Only(), shortDelays())
	tb.start(t, tb.daemon, tb.bridge, tb.agent)
	m := newMonitor(tb)
	m.grace = 15 * time.Second
	kept, lost := m.mustAdd(t, "kept"), m.mustAdd(t, "lost")
	m.waitPods(t, time.Minute)
	tb.waitConsistent(t, 2, time.Minute)
	tb.bridge.End(syscall.SIGKILL) // it would add the address again
	// Without a handshake, as the bridge must never do.
	check.Must(t, cluster.Patch(t.Context(), tb.CiliumNodes(), nodeName, fmt.Sprintf(`{"spec":{"ipam":{"pool":{%q:null}}}}`, lost.ips[0])))
	b, err := tb.nodeState(t.Context())
	check.Must(t, err)
	if b.CheckUsedInPool() == nil {
		t.Error("a used address was removed from the pool, which was not detected")
	}
	tb.agent.End(syscall.SIGKILL)
	m.followAgent(t.Context(), tb.agent.MustStart(t))
	// On a busy machine the endpoint of the other pod becomes ready after that of the grace time.
	cluster.MustEventually(t, "the other pod to be ready", time.Minute, func() error {
		return m.checkPods(t.Context(), []running{{kept.name, kept.ips}})
	})
	if len(m.violations) != 1 || !strings.Contains(m.violations[0], "no ready endpoint of lost ") {
		t.Errorf("the agent lost one pod; the monitor found %q", m.violations)
	}
	m.added(&pod{name: "other", ips: kept.ips})
	if len(m.violations) != 2 {
		t.Errorf("two pods have an address; the monitor found %q", m.violations)
	}
}
