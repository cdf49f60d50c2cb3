package dashboard

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
	"github.com/delegated-ipam/delegated-ipam/test/bridge/agent"
	"github.com/delegated-ipam/delegated-ipam/test/bridge/apiserver"
	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

// cluster is three nodes with a daemon; the first has a bridge, an imitated API server and an
// imitated agent, too.
type cluster struct {
	workers []*worker
	server  *apiserver.Server
	agent   *agent.Agent
	// bridge is the address of the bridge's metrics.
	bridge string
	pods   []string
}

// worker is a node whose plugin fails while a file "fail" exists, and is slow while "slow" exists.
type worker struct {
	name, metrics string
	node          *harness.Node
	daemon        *harness.Daemon
}

// spoiltPlugin executes the real plugin, unless a file of the node says otherwise.
const spoiltPlugin = `#!/bin/sh
dir=$(dirname "$0")/..
[ ! -e "$dir/slow" ] || sleep 0.2
if [ -e "$dir/fail" ] && [ "$CNI_COMMAND" != VERSION ]; then
  echo '{"cniVersion":"1.0.0","code":11,"msg":"the backend is unavailable"}'
  exit 1
fi
exec "$0.real"
`

func newCluster(t *testing.T, bridge string) *cluster {
	t.Helper()
	c := &cluster{server: apiserver.Start(t), bridge: check.FreeAddress(t)}
	for i := range 3 {
		w := &worker{name: fmt.Sprintf("worker-%d", i+1), metrics: check.FreeAddress(t), node: harness.NewNode(t)}
		w.node.WriteNetwork(t, "05-cilium", harness.DualStack())
		w.node.WrapPlugin(t, "host-local", spoiltPlugin)
		w.start(t)
		c.workers = append(c.workers, w)
	}
	n := c.workers[0].node
	c.server.Create(n.Name, apiserver.Object{"ipam": apiserver.Object{}})
	c.agent = agent.New(c.server, n.Name)
	c.agent.Start(t)
	startProgram(t, bridge, "--node-name="+n.Name, "--host="+n.Socket, "--kubeconfig="+c.server.Kubeconfig(t),
		"--metrics-address="+c.bridge, "--excess-ip-release-delay=10s", "--pre-allocate=4", "--min-allocate=4", "--max-above-watermark=0", "--log-level=error")
	return c
}

// startProgram runs a program until the test ends.
func startProgram(t *testing.T, program string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Stderr = os.Stderr
	check.Must(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Wait() }) // it was killed
}

func (w *worker) start(t *testing.T) {
	t.Helper()
	w.daemon = w.node.Start(t, "--metrics-address="+w.metrics, "--verify-interval=2s", "--log-level=warning")
}

// targets returns the addresses of metrics by job and instance.
func (c *cluster) targets() map[string]map[string]string {
	daemons := map[string]string{}
	for _, w := range c.workers {
		daemons[w.name] = w.metrics
	}
	return map[string]map[string]string{"delegated-ipam": daemons, "delegated-ipam-bridge": {"worker-1": c.bridge}}
}

// run puts load on the cluster, with one fault after the other.
func (c *cluster) run(t *testing.T, duration time.Duration) {
	t.Helper()
	stop := make(chan struct{})
	var clients sync.WaitGroup
	for i, w := range c.workers {
		for client := range 3 {
			clients.Go(func() { allocateAndRelease(w.node.Client(), client, uint64(i), stop) })
		}
	}
	defer clients.Wait()
	defer close(stop)

	faults := c.faults(t)
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for start := time.Now(); time.Since(start) < duration; <-tick.C {
		for len(faults) > 0 && time.Since(start) >= duration*time.Duration(faults[0].percent)/100 {
			faults[0].do()
			faults = faults[1:]
		}
		c.agent.Step(t)
		for len(c.agent.Uses()) < 2*len(c.pods) && c.agent.Allocate(true) {
		}
	}
}

// fault happens after a share of the time.
type fault struct {
	percent int
	do      func()
}

func (c *cluster) faults(t *testing.T) []fault {
	t.Helper()
	second, third := c.workers[1], c.workers[2]
	return []fault{
		{10, func() { c.addPods(8) }},
		{20, func() { second.spoil(t, "slow") }},
		{30, func() { second.repair(t, "slow"); c.addPods(8) }},
		{40, func() { third.spoil(t, "fail") }},
		{48, func() { c.server.Down() }},
		{50, func() { third.repair(t, "fail") }},
		{56, func() { c.server.Up() }},
		{62, func() { second.loseLeases(t) }},
		{68, func() { c.deletePods(12) }},
		{76, func() { third.daemon.Kill(t) }},
		{84, func() { third.start(t) }},
	}
}

func (c *cluster) addPods(count int) {
	c.pods = append(c.pods, c.server.AddPods(c.workers[0].node.Name, count)...)
}

func (c *cluster) deletePods(count int) {
	c.server.DeletePods(c.pods[:count]...)
	c.pods = c.pods[count:]
	c.agent.Free(c.agent.Uses()[:2*count]...)
}

func (w *worker) spoil(t *testing.T, how string) {
	t.Helper()
	check.Must(t, os.WriteFile(filepath.Join(w.node.Dir, how), nil, 0o600))
}

func (w *worker) repair(t *testing.T, how string) {
	t.Helper()
	check.Must(t, os.Remove(filepath.Join(w.node.Dir, how)))
}

// loseLeases deletes the files of leases that host-local has, as a user may.
func (w *worker) loseLeases(t *testing.T) {
	t.Helper()
	w.node.ResetHistory()
	for _, lease := range w.node.Leases(t)[:4] {
		check.Must(t, os.Remove(filepath.Join(w.node.StoreDir, "pods", lease.IP.String())))
	}
}

// allocateAndRelease allocates for one of eight owners, verifies or releases, until it is stopped.
// Errors are a part of the recording.
func allocateAndRelease(c harness.Client, client int, seed uint64, stop <-chan struct{}) {
	random := rand.New(rand.NewPCG(seed, uint64(client)))
	for {
		select {
		case <-stop:
			return
		case <-time.After(time.Duration(random.IntN(400)) * time.Millisecond):
		}
		got, err := c.Try("POST", fmt.Sprintf("/v1/ipam?owner=kube-system/client-%d-%d", client, random.IntN(8)))
		if err != nil || random.IntN(2) == 0 {
			continue
		}
		for _, ip := range got.Addrs() {
			_, _ = c.Try("DELETE", "/v1/ipam/"+ip.String())
		}
	}
}
