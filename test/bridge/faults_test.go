package bridge

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/test/bridge/agent"
	"github.com/delegated-ipam/delegated-ipam/test/bridge/apiserver"
	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

// smallFlags are flags with which little is going on; the first publication has 4.
func smallFlags() []string { return []string{"--pre-allocate=1", "--min-allocate=4"} }

// waitForEvent waits for an Event on the node.
func (w *fixture) waitForEvent(t *testing.T, reason string) {
	t.Helper()
	w.eventually(t, "the Event "+reason, func() error {
		for _, e := range w.server.Events() {
			if e.Reason == reason && e.Kind == "Node" && e.Name == w.node.Name {
				return nil
			}
		}
		return fmt.Errorf("the Events are %v", w.server.Events())
	})
}

// wantUnchanged fails the test if anything was written or acquired.
func (w *fixture) wantUnchanged(t *testing.T) {
	t.Helper()
	if _, writes := w.server.Counts(); writes > 0 {
		t.Errorf("the CiliumNode was written %d times", writes)
	}
	if list := w.sidecar.List(t); len(list) > 0 {
		t.Errorf("the sidecar holds %v", list)
	}
}

func TestNothingIsWrittenWhereTheBridgeIsWrong(t *testing.T) {
	t.Run("a CiliumNode of another mode", func(t *testing.T) {
		w := newFixture(t, false)
		w.server.Delete(w.node.Name)
		w.server.Create(w.node.Name, apiserver.Object{"ipam": apiserver.Object{"podCIDRs": []any{"10.1.0.0/24"}}})
		startBridge(t, w.server, w.node, smallFlags()...)
		w.waitForEvent(t, "WrongIPAMMode")
		w.wantUnchanged(t)
	})
	t.Run("the sidecar of another node", func(t *testing.T) {
		w := newFixture(t, false)
		w.server.Create("other", apiserver.Object{})
		p := startBridge(t, w.server, w.node, append(smallFlags(), "--node-name=other")...)
		harness.Eventually(t, "it to say so", func() error {
			if !strings.Contains(p.out.String(), "SidecarNodeMismatch") {
				return errors.New("it has not")
			}
			return nil
		})
		w.wantUnchanged(t)
	})
	t.Run("no permission", func(t *testing.T) {
		w := newFixture(t, false)
		w.server.Allow(func(r apiserver.Permission) bool { return r.Resource == "events" })
		startBridge(t, w.server, w.node, smallFlags()...)
		w.waitForEvent(t, "NotPermitted")
		w.wantUnchanged(t)
	})
	for _, missing := range []string{"ciliumnodes", "ciliumnodes/status"} {
		t.Run("no permission to patch "+missing, func(t *testing.T) {
			w := newFixture(t, false)
			w.server.Allow(func(r apiserver.Permission) bool { return r.Verb != "patch" || r.Resource != missing })
			startBridge(t, w.server, w.node, smallFlags()...)
			w.waitForEvent(t, "NotPermitted")
			w.wantUnchanged(t)
		})
	}
	t.Run("permission to read and no more", func(t *testing.T) {
		w := newFixture(t, false)
		w.server.Allow(func(r apiserver.Permission) bool {
			return r.Resource == "events" || slices.Contains([]string{"get", "list", "watch"}, r.Verb)
		})
		startBridge(t, w.server, w.node, smallFlags()...)
		w.waitForEvent(t, "NotPermitted")
		w.wantUnchanged(t)
	})
}

func TestItGoesOnAfterAFault(t *testing.T) {
	faults := map[string]func(t *testing.T, w *fixture, p *process){
		"the API server was away": func(t *testing.T, w *fixture, p *process) {
			w.server.Down()
			w.waitForLog(t, p, "client-go")
			w.server.Up()
		},
		"the sidecar was away": func(t *testing.T, w *fixture, p *process) {
			w.sidecar.Kill(t)
			w.node.Start(t)
		},
		"the agent was killed": func(t *testing.T, w *fixture, _ *process) {
			w.agent.Kill()
			w.agent.Start(t)
		},
		"every second write met another": func(t *testing.T, w *fixture, _ *process) {
			n := 0
			w.server.BeforeWrites(func() {
				if n++; n%2 == 0 {
					w.server.SetPool(w.node.Name, apiserver.Object{})
				}
			})
		},
		"the CiliumNode was deleted and is another one": func(t *testing.T, w *fixture, _ *process) {
			w.server.Delete(w.node.Name)
			w.waitForEvent(t, "CiliumNodeMissing")
			w.server.Create(w.node.Name, apiserver.Object{"ipam": apiserver.Object{}})
			// For a moment it is not: the agent does not lose what it has before it is started again.
			harness.Eventually(t, "what is used to be published again", func() error {
				w.agent.Step(t)
				n, _ := w.server.Node(t, w.node.Name)
				for _, ip := range w.agent.Uses() {
					if _, there := n.Pool[ip]; !there {
						return fmt.Errorf("%s is not", ip)
					}
				}
				return nil
			})
		},
		"somebody emptied the pool": func(t *testing.T, w *fixture, _ *process) {
			n, _ := w.server.Node(t, w.node.Name)
			gone := apiserver.Object{}
			for ip := range n.Pool {
				gone[ip] = nil
			}
			w.server.SetPool(w.node.Name, gone)
		},
	}
	for name, fault := range faults {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newFixture(t, true)
			p := startBridge(t, w.server, w.node, smallFlags()...)
			w.agent.Start(t)
			w.eventually(t, "the first publication", func() error { return w.poolHas(t, 4) })
			w.addPods(t, 2)
			fault(t, w, p)
			harness.Eventually(t, "addresses and their reserve", func() error {
				w.agent.Step(t)
				return w.atRest(t, max(4, w.inUse(t)+1))
			})
			w.agent.Check(t)
			w.addPods(t, 3)
			w.agent.Free(w.agent.Uses()...)
			w.eventually(t, "the excess to go back", func() error { return w.atRest(t, 4) })
		})
	}
}

// waitForLog waits for a word in the log.
func (w *fixture) waitForLog(t *testing.T, p *process, word string) {
	t.Helper()
	harness.Eventually(t, word+" in the log", func() error {
		w.agent.Step(t)
		if !strings.Contains(p.out.String(), word) {
			return errors.New("it is not there")
		}
		return nil
	})
}

func TestAPluginWithoutAddressesIsToldOfAndWhatThereIsIsServed(t *testing.T) {
	w := newFixture(t, false)
	network := harness.IPv4Only()
	network.Subnets = []string{"10.15.0.0/29"} // .2 to .6
	const said = "CNI configuration read"
	before := strings.Count(w.sidecar.Log(), said)
	w.node.WriteNetwork(t, "05-cilium", network)
	harness.Eventually(t, "the sidecar to read it", func() error {
		if strings.Count(w.sidecar.Log(), said) == before {
			return errors.New("it has not")
		}
		return nil
	})
	startBridge(t, w.server, w.node, "--pre-allocate=8")
	w.agent.Start(t)
	w.waitForEvent(t, "PoolExhausted")
	w.eventually(t, "what there is to be published", func() error { return w.poolHas(t, 5) })
}

func TestASlotWhoseAddressSomebodyElseHasKeepsWhatIsUsed(t *testing.T) {
	w := newFixture(t, false)
	p := startBridge(t, w.server, w.node, smallFlags()...)
	w.agent.Start(t)
	w.eventually(t, "the first publication", func() error { return w.poolHas(t, 4) })
	w.addPods(t, 1)
	w.eventually(t, "the agent to have written it", func() error {
		if n, _ := w.server.Node(t, w.node.Name); len(n.Used) != 1 {
			return fmt.Errorf("used are %v", n.Used)
		}
		return nil
	})
	p.end(t, syscall.SIGKILL)
	used := w.agent.Uses()[0]
	w.sidecar.Stop(t)
	w.node.WipeJournal(t)
	w.node.WipeStore(t)
	w.sidecar = w.node.Start(t)
	w.sidecar.TryRestore(t, used, "somebody-else").WantStatus(t, 200)
	startBridge(t, w.server, w.node, smallFlags()...)
	w.waitForEvent(t, "AddressNotHeld")
	w.eventually(t, "all but the used one to be held", func() error {
		n, _ := w.server.Node(t, w.node.Name)
		held := map[string]bool{}
		for _, a := range w.sidecar.List(t) {
			for _, at := range a.Addresses {
				held[at.IP.String()] = strings.HasPrefix(a.Owner, "ciliumnode-")
			}
		}
		for ip := range n.Pool {
			if ip != used && !held[ip] {
				return fmt.Errorf("%s is in the pool and not held", ip)
			}
		}
		if _, there := n.Pool[used]; !there {
			t.Fatalf("%s is used and has left the pool", used)
		}
		return nil
	})
	w.agent.Free(used)
	w.eventually(t, "it to leave when nobody uses it", func() error {
		if n, _ := w.server.Node(t, w.node.Name); slices.Contains(slices.Collect(maps.Keys(n.Pool)), used) {
			return fmt.Errorf("%s is still there", used)
		}
		return nil
	})
}

func TestEntriesOfOthersAreLeftAlone(t *testing.T) {
	const foreign = "192.0.2.7"
	w := newFixture(t, false)
	w.agent = agent.New(w.server, w.node.Name, foreign)
	w.server.SetPool(w.node.Name, apiserver.Object{foreign: apiserver.Object{"resource": "eni-1"}})
	startBridge(t, w.server, w.node, smallFlags()...)
	w.agent.Start(t)
	w.waitForEvent(t, "ForeignPoolEntry")
	w.eventually(t, "the first publication", func() error {
		n, _ := w.server.Node(t, w.node.Name)
		if n.Pool[foreign].Resource != "eni-1" || len(n.Pool) != 5 {
			return fmt.Errorf("the pool is %v", n.Pool)
		}
		return nil
	})
}
