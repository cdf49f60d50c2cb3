package agent

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"github.com/delegated-ipam/delegated-ipam/test/ciliumagent"
	"github.com/delegated-ipam/delegated-ipam/test/cluster"
)

// monitor checks the invariants while programs are killed.
type monitor struct {
	testbed *testbed
	tracker *podTracker
	// grace is how long a healthy agent may take to restore its endpoints. A dropped endpoint
	// never returns.
	grace time.Duration

	// followers are the running calls of followAgent.
	followers sync.WaitGroup

	mu sync.Mutex
	// restarts counts the restarts after which every running pod was found; restored has the
	// duration of each.
	restarts int
	restored []time.Duration
	// comparisons counts the comparisons of the records, withdrawn the addresses that have left
	// the pool. pool has the minimum and the maximum size of the pool.
	comparisons, withdrawn int
	pool                   [2]int
}

// followAgent follows a process of the agent: when it is healthy, it must have every endpoint that
// existed before, and each pod must be reachable. A process that ends earlier is not checked.
func (m *monitor) followAgent(ctx context.Context, now *cluster.Process) {
	before, begin := m.tracker.runningPods(), time.Now()
	for agentAPI().Healthy(ctx) != nil {
		if !now.Running() || ctx.Err() != nil {
			return
		}
		sleep(ctx, 200*time.Millisecond)
	}
	err := cluster.Eventually(ctx, m.grace, func() error {
		if !now.Running() {
			return nil
		}
		return m.checkPods(ctx, m.tracker.stillRunning(before))
	})
	switch {
	case ctx.Err() != nil || !now.Running():
	case err != nil:
		m.tracker.addViolation("after a restart of the agent: %v", err)
	default:
		m.mu.Lock()
		defer m.mu.Unlock()
		m.restarts++
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
	if err := ciliumagent.SharedAddresses(list); err != nil {
		m.tracker.addViolation("%v", err)
	}
	has := map[netip.Addr]ciliumagent.Endpoint{}
	for _, e := range list {
		for _, ip := range e.IPs {
			has[ip] = e
		}
	}
	var errs []error
	for _, r := range wanted {
		if e := has[r.ips[0]]; e.State != "ready" || !sameAddresses(e.IPs, r.ips) {
			errs = append(errs, fmt.Errorf("no ready endpoint of %s with %v; the agent has %+v", r.name, r.ips, e))
		} else if err := checkReachable(ctx, r.name, r.ips); err != nil {
			errs = append(errs, err)
		}
	}
	if len(errs) == 0 {
		return nil
	}
	// A pod may have been deleted since.
	if again := m.tracker.stillRunning(wanted); len(again) < len(wanted) {
		return m.checkPods(ctx, again)
	}
	return errors.Join(errs...)
}

// watchState compares the records whenever all of them can be read.
func (m *monitor) watchState(ctx context.Context) {
	var last ciliumagent.NodeState
	for ; ctx.Err() == nil; sleep(ctx, time.Second) {
		before, err := m.testbed.nodeState(ctx)
		if err != nil {
			continue // the API server is down
		}
		after, err := m.testbed.nodeState(ctx)
		if err != nil {
			continue
		}
		if err := before.CheckUsedInPool(); err != nil {
			m.tracker.addViolation("%v", err)
		}
		for ip := range before.Pool {
			// An address is released after its withdrawal, so it may have left the store in between.
			if _, published := after.Pool[ip]; published && !before.Store[ip] && !after.Store[ip] {
				m.tracker.addViolation("%s was in the pool without a lease of host-local", ip)
			}
		}
		m.countPool(last, after)
		last = after
	}
}

// countPool counts the changes of the pool.
func (m *monitor) countPool(last, now ciliumagent.NodeState) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.comparisons == 0 {
		m.pool = [2]int{len(now.Pool), len(now.Pool)}
	}
	m.comparisons++
	m.pool = [2]int{min(m.pool[0], len(now.Pool)), max(m.pool[1], len(now.Pool))}
	for ip := range last.Pool {
		if _, published := now.Pool[ip]; !published {
			m.withdrawn++
		}
	}
}

// watchEndpoints checks for shared addresses whenever the agent responds.
func (m *monitor) watchEndpoints(ctx context.Context) {
	for ; ctx.Err() == nil; sleep(ctx, time.Second) {
		list, err := agentAPI().Endpoints(ctx)
		if err != nil {
			continue // the agent is down
		}
		if err := ciliumagent.SharedAddresses(list); err != nil {
			m.tracker.addViolation("%v", err)
		}
	}
}
