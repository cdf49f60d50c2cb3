package bridge

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/test/bridge/agent"
	"github.com/delegated-ipam/delegated-ipam/test/bridge/apiserver"
	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

// smallFlags keep the pool small: the first publication has 4 slots.
func smallFlags() []string { return []string{"--pre-allocate=1", "--min-allocate=4"} }

// fixture is a node with everything that the bridge works with.
type fixture struct {
	server *apiserver.Server
	node   *harness.Node
	daemon *harness.Daemon
	agent  *agent.Agent
	dual   bool
}

// newFixture returns a node whose agent has created its CiliumNode, with a running daemon and without
// a bridge.
func newFixture(t *testing.T, dual bool) *fixture {
	t.Helper()
	f := &fixture{server: apiserver.Start(t), node: harness.NewNode(t), dual: dual}
	network := harness.IPv4Only()
	if dual {
		network = harness.DualStack()
	} else {
		f.node.Flags = []string{"--enable-ipv6=false"}
	}
	f.node.WriteNetwork(t, "05-cilium", network)
	f.daemon = f.node.Start(t)
	f.server.Create(f.node.Name, apiserver.Object{"ipam": apiserver.Object{}})
	f.agent = agent.New(f.server, f.node.Name)
	return f
}

func eachFamily(t *testing.T, test func(t *testing.T, f *fixture)) {
	t.Helper()
	for name, dual := range map[string]bool{"IPv4": false, "dual stack": true} {
		t.Run(name, func(t *testing.T) { test(t, newFixture(t, dual)) })
	}
}

// addNode creates the Node, which can have this many pods.
func (f *fixture) addNode(pods int) {
	f.server.Add("nodes", apiserver.Object{
		"apiVersion": "v1", "kind": "Node", "metadata": apiserver.Object{"name": f.node.Name},
		"status": apiserver.Object{"allocatable": apiserver.Object{"pods": strconv.Itoa(pods)}},
	})
}

// eventually lets the agent act until a condition is met.
func (f *fixture) eventually(t *testing.T, what string, met func() error) {
	t.Helper()
	harness.Eventually(t, what, func() error {
		f.agent.Step(t)
		f.agent.Check(t)
		return met()
	})
}

// serve starts a bridge and an agent, and waits for the first publication.
func (f *fixture) serve(t *testing.T, slots int, flags ...string) *process {
	t.Helper()
	p := startBridge(t, f.server, f.node, flags...)
	f.agent.Start(t)
	f.eventually(t, "the first publication", func() error { return f.poolHas(t, slots) })
	return p
}

// addPods lets the agent allocate addresses for this many more pods.
func (f *fixture) addPods(t *testing.T, count int) {
	t.Helper()
	for range count {
		f.eventually(t, "an address for a pod", func() error {
			if !f.agent.Allocate(f.dual) {
				return errors.New("none is free")
			}
			return nil
		})
	}
}

// slots returns the number of slots that are needed: those with a used address, and at least the three
// of the agent. The agent takes the two families of a pod from any slots.
func (f *fixture) slots(t *testing.T) int {
	t.Helper()
	n, _ := f.server.Node(t, f.node.Name)
	slots := map[string]bool{}
	for _, ip := range f.agent.Uses() {
		slots[n.Pool[ip].Resource] = true
	}
	return max(3, len(slots))
}

// poolHas checks that the pool has this many slots with all families, and that the plugin holds the
// same addresses.
func (f *fixture) poolHas(t *testing.T, slots int) error {
	t.Helper()
	n, _ := f.server.Node(t, f.node.Name)
	want := slots
	if f.dual {
		want *= 2
	}
	if len(n.Pool) != want {
		return fmt.Errorf("the pool has %d addresses, want %d: %v", len(n.Pool), want, n.Pool)
	}
	return compare(t, f.server, f.node)
}

// atRest checks poolHas, and that no handshake is left.
func (f *fixture) atRest(t *testing.T, slots int) error {
	t.Helper()
	if n, _ := f.server.Node(t, f.node.Name); len(n.Release) > 0 {
		return fmt.Errorf("handshakes are left: %v", n.Release)
	}
	return f.poolHas(t, slots)
}

// waitForUsed waits until the agent has reported a number of used addresses.
func (f *fixture) waitForUsed(t *testing.T, count int) {
	t.Helper()
	f.eventually(t, "the agent's status", func() error {
		if n, _ := f.server.Node(t, f.node.Name); len(n.Used) != count {
			return fmt.Errorf("used are %v; want %d", n.Used, count)
		}
		return nil
	})
}

// wipe starts a daemon without journal, whose plugin has no addresses.
func (f *fixture) wipe(t *testing.T) {
	t.Helper()
	f.daemon.Stop(t)
	f.node.WipeJournal(t)
	f.node.WipeStore(t)
	f.daemon = f.node.Start(t)
}

// converge waits until the bridge is at rest with a number of slots.
func (f *fixture) converge(t *testing.T, slots int) {
	t.Helper()
	f.eventually(t, "the release of the excess", func() error { return f.atRest(t, slots) })
}

func compare(t *testing.T, s *apiserver.Server, n *harness.Node) error {
	t.Helper()
	node, _ := s.Node(t, n.Name)
	held := map[string]bool{}
	leases, err := n.Store()
	if err != nil {
		return err // host-local writes a lease while we read it, perhaps
	}
	for _, l := range leases {
		held[l.IP.String()] = true
		if _, published := node.Pool[l.IP.String()]; !published {
			return fmt.Errorf("%s is held and not in the pool", l.IP)
		}
	}
	for ip := range node.Pool {
		if !held[ip] {
			return fmt.Errorf("%s is in the pool and not held", ip)
		}
	}
	return nil
}

// waitForCondition waits for the begin of a condition in the bridge's log.
func (f *fixture) waitForCondition(t *testing.T, p *process, reason string) {
	t.Helper()
	f.waitForLog(t, p, "reason="+reason)
}

// waitForLog waits for a word in the bridge's log.
func (f *fixture) waitForLog(t *testing.T, p *process, word string) {
	t.Helper()
	harness.Eventually(t, word+" in the log", func() error {
		f.agent.Step(t)
		if !strings.Contains(p.out.String(), word) {
			return errors.New("not there")
		}
		return nil
	})
}

func (f *fixture) wantUnchanged(t *testing.T) {
	t.Helper()
	if _, writes := f.server.Counts(); writes > 0 {
		t.Errorf("the CiliumNode was written %d times", writes)
	}
	if list := f.daemon.List(t); len(list) > 0 {
		t.Errorf("the daemon holds %v", list)
	}
}
