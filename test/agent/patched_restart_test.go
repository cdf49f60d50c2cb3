package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/delegated-ipam/delegated-ipam/test/cluster"
)

// probeInterval is the interval of the connections while the agent is restarted.
const probeInterval = 20 * time.Millisecond

// outage counts the connections to a pod, and those that failed.
type outage struct{ tried, failed int }

// TestPatchedAgentRestart restarts the stock agent, then the patched one, while the node and a pod
// connect to another pod. The restart of the patched agent fails no connection that the stock
// agent's does not.
func TestPatchedAgentRestart(t *testing.T) {
	tb := newPatchedTestbed(t, ipv4Only())
	tb.sidecar.MustStart(t)
	stock := tb.newStockAgent(t)
	tb.waitHealthy(t, stock.MustStart(t))
	pods := tb.addPods(t, "p", 2)
	tb.checkPodsReachable(t, pods)

	stockOutage := tb.measureRestart(t, stock, pods)
	stock.End(syscall.SIGTERM)
	tb.waitHealthy(t, tb.agent.MustStart(t))
	tb.mustAgentAddresses(t, agentOwners(), pods...)
	// The agent is healthy before it has changed the programs of the pods to its new router address.
	tb.waitForLog(t, tb.agent, "Finished regenerating restored endpoints")
	tb.checkPodsReachable(t, pods)
	patchedOutage := tb.measureRestart(t, tb.agent, pods)

	for name, o := range map[string]outage{"stock": stockOutage, "patched": patchedOutage} {
		tb.record(t, name+" agent restarted by SIGKILL: connections to a pod meanwhile", fmt.Sprintf("%d, of which %d failed", o.tried, o.failed))
	}
	if patchedOutage.failed > 0 && stockOutage.failed == 0 {
		t.Errorf("%d connections failed during the restart of the patched agent; want none, as with the stock agent", patchedOutage.failed)
	}
}

// measureRestart kills an agent and starts it again while the node and the second pod connect to
// the first pod.
func (tb *testbed) measureRestart(t *testing.T, agent *cluster.Program, pods []*pod) outage {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var mu sync.Mutex
	var total outage
	var wg sync.WaitGroup
	for _, connect := range []func() error{
		func() error { return checkReachable(t.Context(), pods[0].name, pods[0].ips) },
		func() error { return pods[0].checkReachableFrom(t.Context(), pods[1]) },
	} {
		wg.Go(func() {
			o := connectRepeatedly(ctx, connect)
			mu.Lock()
			defer mu.Unlock()
			total.tried, total.failed = total.tried+o.tried, total.failed+o.failed
		})
	}
	tb.restart(t, agent)
	tb.waitHealthy(t, agent.Current())
	stop()
	wg.Wait()
	return total
}

// connectRepeatedly connects until ctx ends.
func connectRepeatedly(ctx context.Context, connect func() error) outage {
	var o outage
	for ctx.Err() == nil {
		o.tried++
		if err := connect(); err != nil {
			o.failed++
		}
		sleep(ctx, probeInterval)
	}
	return o
}

// Agent and sidecar are replaced in turns while pods run: stock agent to patched agent, a sidecar
// that starts while the previous one still runs, back to the stock agent, and forward again.
func TestPatchedAgentUpgrades(t *testing.T) {
	tb := newPatchedTestbed(t, ipv4Only())
	stock := tb.newStockAgent(t)
	tb.waitHealthy(t, stock.MustStart(t))
	pods := tb.addPods(t, "before", 2)
	stock.End(syscall.SIGTERM)

	tb.sidecar.MustStart(t)
	tb.waitHealthy(t, tb.agent.MustStart(t))
	own := tb.mustAgentAddresses(t, agentOwners(), pods...)
	tb.checkPatchedConnectivity(t, own, pods)

	next := tb.newProgram(t, "next-sidecar", nil, tb.sidecarArgs("--owners=router,health,ingress")...)
	waiting := next.MustStart(t)
	tb.waitForLog(t, next, "PID")
	tb.checkEndsOnSIGTERM(t, tb.sidecar)
	if !waiting.Running() {
		t.Fatalf("the next sidecar ended; see its log in %s", tb.dir)
	}
	cluster.MustEventually(t, "the next sidecar to serve", time.Minute, func() error {
		_, err := tb.compareRecords(t.Context(), agentOwners(), pods)
		return err
	})
	tb.restart(t, tb.agent)
	tb.waitHealthy(t, tb.agent.Current())
	tb.wantSameAddresses(t, "with the next sidecar", own, agentOwners(), pods...)

	tb.agent.End(syscall.SIGTERM)
	tb.waitHealthy(t, stock.MustStart(t))
	tb.checkPodsReachable(t, pods)
	pods = append(pods, tb.addPods(t, "stock", 1)...)
	stock.End(syscall.SIGTERM)
	tb.waitHealthy(t, tb.agent.MustStart(t))
	tb.wantSameAddresses(t, "after a time with the stock agent", own, agentOwners(), pods...)
	tb.checkPatchedConnectivity(t, own, pods)
}

// waitForLog waits until the log of a program has a text.
func (tb *testbed) waitForLog(t *testing.T, p *cluster.Program, text string) {
	t.Helper()
	cluster.MustEventually(t, p.Name()+" to log "+text, time.Minute, func() error {
		log, err := os.ReadFile(tb.path(p.Name() + ".log"))
		if err == nil && !strings.Contains(string(log), text) {
			err = errors.New("the log does not have it")
		}
		return err
	})
}
