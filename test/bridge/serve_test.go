package bridge

import (
	"fmt"
	"math/rand/v2"
	"syscall"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/test/bridge/agent"
	"github.com/delegated-ipam/delegated-ipam/test/bridge/apiserver"
	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

// fixture is a node with everything that the bridge works with.
type fixture struct {
	server  *apiserver.Server
	node    *harness.Node
	sidecar *harness.Sidecar
	agent   *agent.Agent
	dual    bool
}

// newFixture is a node whose agent has made its CiliumNode, with a sidecar, and
// without a bridge.
func newFixture(t *testing.T, dual bool) *fixture {
	t.Helper()
	w := &fixture{server: apiserver.Start(t), node: harness.NewNode(t), dual: dual}
	network := harness.IPv4Only()
	if dual {
		network = harness.DualStack()
	} else {
		w.node.Flags = []string{"--enable-ipv6=false"}
	}
	w.node.WriteNetwork(t, "05-cilium", network)
	w.sidecar = w.node.Start(t)
	w.server.Create(w.node.Name, apiserver.Object{"ipam": apiserver.Object{}})
	w.agent = agent.New(w.server, w.node.Name)
	return w
}

// eventually lets the agent live until a condition is met.
func (w *fixture) eventually(t *testing.T, what string, met func() error) {
	t.Helper()
	harness.Eventually(t, what, func() error {
		w.agent.Step(t)
		w.agent.Check(t)
		return met()
	})
}

// inUse is how many slots have an address that is used: the agent takes the two
// families of a pod from any slots.
func (w *fixture) inUse(t *testing.T) int {
	t.Helper()
	n, _ := w.server.Node(t, w.node.Name)
	slots := map[string]bool{}
	for _, ip := range w.agent.Uses() {
		slots[n.Pool[ip].Resource] = true
	}
	return len(slots)
}

// poolHas tells whether the pool has so many slots, each with its families, and is
// what the plugin holds.
func (w *fixture) poolHas(t *testing.T, slots int) error {
	t.Helper()
	n, _ := w.server.Node(t, w.node.Name)
	want := slots
	if w.dual {
		want *= 2
	}
	if len(n.Pool) != want {
		return fmt.Errorf("the pool has %d addresses, want %d: %v", len(n.Pool), want, n.Pool)
	}
	return compare(t, w.server, w.node)
}

// atRest is a pool with so many slots and no handshake.
func (w *fixture) atRest(t *testing.T, slots int) error {
	t.Helper()
	if n, _ := w.server.Node(t, w.node.Name); len(n.Release) > 0 {
		return fmt.Errorf("handshakes are left: %v", n.Release)
	}
	return w.poolHas(t, slots)
}

// addPods lets the agent have this many pods more.
func (w *fixture) addPods(t *testing.T, count int) {
	t.Helper()
	for range count {
		w.eventually(t, "an address for a pod", func() error {
			if !w.agent.Allocate(w.dual) {
				return fmt.Errorf("none is free")
			}
			return nil
		})
	}
}

func eachFamily(t *testing.T, test func(t *testing.T, w *fixture)) {
	t.Helper()
	for name, dual := range map[string]bool{"IPv4": false, "dual stack": true} {
		t.Run(name, func(t *testing.T) { test(t, newFixture(t, dual)) })
	}
}

func TestTheAgentGetsWhatItNeedsAndTheExcessGoesBack(t *testing.T) {
	eachFamily(t, func(t *testing.T, w *fixture) {
		startBridge(t, w.server, w.node, "--pre-allocate=3", "--min-allocate=4")
		w.agent.Start(t)
		w.eventually(t, "the first publication", func() error { return w.poolHas(t, 6) })
		w.addPods(t, 10)
		w.eventually(t, "pods and reserve", func() error { return w.atRest(t, w.inUse(t)+3) })
		w.agent.Free(w.agent.Uses()...)
		w.eventually(t, "the excess to go back", func() error { return w.atRest(t, 4) })
	})
}

func TestABridgeThatIsKilledAtAnyMomentLosesAndLeaksNothing(t *testing.T) {
	eachFamily(t, func(t *testing.T, w *fixture) {
		flags := []string{"--pre-allocate=2", "--min-allocate=3"}
		bridge := startBridge(t, w.server, w.node, flags...)
		w.agent.Start(t)
		w.eventually(t, "the first publication", func() error { return w.poolHas(t, 5) })
		random := rand.New(rand.NewPCG(1, 2))
		for range 25 {
			_, before := w.server.Counts()
			after := before + random.IntN(4)
			w.eventually(t, "the bridge to write, or to rest", func() error {
				if random.IntN(3) == 0 {
					w.agent.Allocate(w.dual)
				} else if uses := w.agent.Uses(); random.IntN(3) == 0 && len(uses) > 0 {
					w.agent.Free(uses[random.IntN(len(uses))])
				}
				if _, now := w.server.Counts(); now < after && random.IntN(40) != 0 {
					return fmt.Errorf("%d writes, want %d", now, after)
				}
				return nil
			})
			bridge.end(t, syscall.SIGKILL)
			if random.IntN(3) == 0 {
				w.agent.Kill()
				w.agent.Start(t)
			}
			bridge = startBridge(t, w.server, w.node, flags...)
		}
		w.agent.Free(w.agent.Uses()...)
		w.eventually(t, "everything to settle", func() error { return w.atRest(t, 3) })
	})
}
