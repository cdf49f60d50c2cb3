package agent

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/delegated-ipam/delegated-ipam/test/cluster"
)

// patchedPods is the number of pods in the tests of the patched agent.
const patchedPods = 10

func TestPatchedAgent(t *testing.T) { testPatchedLifecycle(t, ipv4Only()) }

func TestPatchedAgentDualStack(t *testing.T) { testPatchedLifecycle(t, dualStack()) }

func testPatchedLifecycle(t *testing.T, nw network) {
	tb := newPatchedTestbed(t, nw)
	now := tb.agent.MustStart(t)
	tb.checkWaitsForSidecar(t, now)
	begin := time.Now()
	tb.sidecar.MustStart(t)
	tb.waitHealthy(t, now)
	tb.record(t, "from the start of the sidecar to a healthy agent", time.Since(begin))

	own := tb.mustAgentAddresses(t, agentOwners())
	pods := tb.addPods(t, "p", patchedPods)
	tb.wantSameAddresses(t, "with pods", own, agentOwners(), pods...)
	tb.checkPatchedConnectivity(t, own, pods)
	tb.checkIngress(t, own["ingress"])

	tb.signal(t, tb.sidecar, syscall.SIGSTOP)
	while := tb.addPods(t, "frozen", 1)
	must(t, agentAPI().Healthy(t.Context()))
	tb.checkPodsReachable(t, while)
	must(t, tb.dropPod(t.Context(), while[0]))
	tb.signal(t, tb.sidecar, syscall.SIGCONT)

	for _, p := range pods {
		must(t, tb.dropPod(t.Context(), p))
	}
	tb.wantSameAddresses(t, "after the pods", own, agentOwners())
	tb.checkEndsOnSIGTERM(t, tb.sidecar)
}

// checkWaitsForSidecar wants an agent without a sidecar to wait, without its API socket, and to log
// for what.
func (tb *testbed) checkWaitsForSidecar(t *testing.T, now *cluster.Process) {
	t.Helper()
	cluster.MustEventually(t, "the agent to log that it waits for the sidecar", 2*time.Minute, func() error {
		if !now.Running() {
			t.Fatalf("the agent ended; see its log in %s", tb.dir)
		}
		log, err := os.ReadFile(tb.path(tb.agent.Name() + ".log"))
		if err != nil {
			return err
		}
		for line := range strings.Lines(string(log)) {
			if strings.Contains(line, "level=warn") && strings.Contains(line, sidecarSocket) {
				return nil
			}
		}
		return errors.New("no warning with the path of the socket")
	})
	if _, err := os.Stat(agentSocket); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket of an agent without addresses: %v; want none", err)
	}
}

// addPods starts pods sequentially. The kubelet also repeats a failed ADD.
func (tb *testbed) addPods(t *testing.T, prefix string, count int) []*pod {
	t.Helper()
	var all []*pod
	for n := range count {
		p := &pod{name: fmt.Sprintf("%s%d", prefix, n)}
		must(t, tb.addPod(t.Context(), p))
		all = append(all, p)
	}
	return all
}

// checkPodsReachable connects from the node to each pod.
func (tb *testbed) checkPodsReachable(t *testing.T, pods []*pod) {
	t.Helper()
	for _, p := range pods {
		cluster.MustEventually(t, "node to "+p.name, time.Minute, func() error { return checkReachable(t.Context(), p.name, p.ips) })
	}
}

// checkPatchedConnectivity connects from the node to the pods, from pod to pod, and from the node to
// the health endpoint.
func (tb *testbed) checkPatchedConnectivity(t *testing.T, own agentAddresses, pods []*pod) {
	t.Helper()
	tb.checkPodsReachable(t, pods)
	for n, p := range pods {
		next := pods[(n+1)%len(pods)]
		cluster.MustEventually(t, p.name+" to "+next.name, time.Minute, func() error { return next.checkReachableFrom(t.Context(), p) })
	}
	for _, ip := range own["health"] {
		cluster.MustEventually(t, "node to health", time.Minute, func() error { return checkHealthReachable(t.Context(), ip) })
	}
}

// ingressIdentity is Cilium's reserved identity of ingress (pkg/identity).
const ingressIdentity = "identity=8 "

// checkIngress wants the datapath to treat the addresses as addresses of ingress.
func (tb *testbed) checkIngress(t *testing.T, ips []netip.Addr) {
	t.Helper()
	for _, ip := range ips {
		cluster.MustEventually(t, "the ipcache to have the address of ingress", time.Minute, func() error {
			out, err := exec.Command(tb.bin("cilium-dbg"), "bpf", "ipcache", "get", ip.String()).CombinedOutput()
			if err != nil {
				return fmt.Errorf("%w: %s", err, out)
			}
			if !strings.Contains(string(out), ingressIdentity) {
				return fmt.Errorf("%s is %s; want %s", ip, out, ingressIdentity)
			}
			return nil
		})
	}
}

// signal sends a signal that does not end the process.
func (tb *testbed) signal(t *testing.T, p *cluster.Program, s syscall.Signal) {
	t.Helper()
	must(t, syscall.Kill(p.Current().PID(), s))
}
