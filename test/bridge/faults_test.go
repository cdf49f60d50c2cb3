package bridge

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/test/bridge/apiserver"
	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

// A refusal writes and acquires nothing.
func TestRefuse(t *testing.T) {
	t.Parallel()
	noPatchOf := func(resource string) func(r apiserver.Permission) bool {
		return func(r apiserver.Permission) bool { return r.Verb != "patch" || r.Resource != resource }
	}
	for name, tt := range map[string]struct {
		allowed func(r apiserver.Permission) bool
		flags   []string
		reason  string
	}{
		"another node's daemon":  {func(apiserver.Permission) bool { return true }, []string{"--node-name=other"}, "DaemonNodeMismatch"},
		"no rights":              {func(r apiserver.Permission) bool { return r.Resource == "events" }, nil, "NotPermitted"},
		"no patch of the spec":   {noPatchOf("ciliumnodes"), nil, "NotPermitted"},
		"no patch of the status": {noPatchOf("ciliumnodes/status"), nil, "NotPermitted"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, false)
			f.server.Create("other", apiserver.Object{})
			f.server.Allow(tt.allowed)
			f.waitForCondition(t, startBridge(t, f.server, f.node, append(smallFlags(), tt.flags...)...), tt.reason)
			f.wantUnchanged(t)
		})
	}
}

//evidence:design/reliability API server, daemon or plugin fail
func TestRecovery(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]func(t *testing.T, f *fixture, p *process){
		"API server down": func(t *testing.T, f *fixture, p *process) {
			f.server.Down()
			f.waitForLog(t, p, "client-go")
			f.server.Up()
		},
		"daemon restarted": func(t *testing.T, f *fixture, p *process) {
			f.daemon.Kill(t)
			f.node.Start(t)
		},
		"agent killed": func(t *testing.T, f *fixture, _ *process) {
			f.agent.Kill()
			f.agent.Start(t)
		},
		"conflicts": func(t *testing.T, f *fixture, _ *process) {
			n := 0
			f.server.BeforeWrites(func() {
				if n++; n%2 == 0 {
					f.server.SetPool(f.node.Name, apiserver.Object{})
				}
			})
		},
		"CiliumNode recreated": func(t *testing.T, f *fixture, p *process) {
			f.server.Delete(f.node.Name)
			f.waitForCondition(t, p, "CiliumNodeMissing")
			f.server.Create(f.node.Name, apiserver.Object{"ipam": apiserver.Object{}})
			// Until then a used address is missing, which the agent tolerates before its next start.
			harness.Eventually(t, "used addresses to be published again", func() error {
				f.agent.Step(t)
				n, _ := f.server.Node(t, f.node.Name)
				for _, ip := range f.agent.Uses() {
					if _, there := n.Pool[ip]; !there {
						return fmt.Errorf("%s is not", ip)
					}
				}
				return nil
			})
		},
		"pool emptied": func(t *testing.T, f *fixture, _ *process) {
			n, _ := f.server.Node(t, f.node.Name)
			gone := apiserver.Object{}
			for ip := range n.Pool {
				gone[ip] = nil
			}
			f.server.SetPool(f.node.Name, gone)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, true)
			p := f.serve(t, 4, smallFlags()...)
			f.addPods(t, 2)
			fault(t, f, p)
			harness.Eventually(t, "used and pre-allocated addresses", func() error {
				f.agent.Step(t)
				return f.atRest(t, max(4, f.slots(t)+1))
			})
			f.agent.Check(t)
			f.addPods(t, 3)
			f.agent.Free(f.agent.Uses()...)
			f.converge(t, 4)
		})
	}
}

// An uninstall released everything and left the CiliumNode: the addresses of a slot are restored together.
func TestUninstalledPool(t *testing.T) {
	t.Parallel()
	eachFamily(t, func(t *testing.T, f *fixture) {
		p := f.serve(t, 4, smallFlags()...)
		f.addPods(t, 3)
		p.end(t, syscall.SIGTERM)
		before, _ := f.server.Node(t, f.node.Name)
		f.wipe(t)
		for range len(before.Pool) { // so that host-local would return other addresses next
			f.daemon.Release(t, f.daemon.AllocateFor(t, "other")...)
		}

		p = startBridge(t, f.server, f.node, smallFlags()...)
		f.eventually(t, "the addresses of the old pool to be held", func() error {
			now, _ := f.server.Node(t, f.node.Name)
			for ip := range before.Pool {
				if _, published := now.Pool[ip]; !published {
					t.Fatalf("%s is not in the pool any more: %v", ip, now.Pool)
				}
			}
			if err := compare(t, f.server, f.node); err != nil {
				return err
			}
			// One ADD holds both families of a slot before the second request of the bridge claims the other.
			for _, a := range f.daemon.List(t) {
				if len(a.Claims) != len(a.Addresses) {
					return fmt.Errorf("%s has the claims %v of the addresses %v", a.Owner, a.Claims, a.Addresses)
				}
			}
			return nil
		})
		// The plan that restores acquires free slots, too. The daemon would complete these requests after
		// the end of the bridge, while its list and its journal are compared.
		f.waitForLog(t, p, "action=acquire")
		f.converge(t, max(4, f.slots(t)+1))
	})
}

// CiliumNode and journal are lost together; host-local still has the leases. The agent restores its
// endpoints from the first publication.
func TestLostTogether(t *testing.T) {
	t.Parallel()
	eachFamily(t, func(t *testing.T, f *fixture) {
		flags := []string{"--pre-allocate=12", "--min-allocate=20"}
		p := f.serve(t, 20, flags...)
		f.addPods(t, 8) // of any slots, so that there are gaps
		p.end(t, syscall.SIGKILL)
		f.agent.Kill()
		node, _ := f.server.Node(t, f.node.Name)
		for ip := range node.Pool {
			if used := slices.Contains(f.agent.Uses(), ip); used {
				f.server.Add("pods", apiserver.Object{
					"metadata": apiserver.Object{"name": ip, "namespace": "default", "uid": ip}, "spec": apiserver.Object{"nodeName": f.node.Name},
					"status": apiserver.Object{"phase": "Running", "podIPs": []any{apiserver.Object{"ip": ip}}},
				})
			} else if !f.dual {
				f.daemon.Release(t, ip) // host-local has no lease of these slots any more
			}
		}
		f.daemon.Stop(t)
		f.node.WipeJournal(t)
		f.daemon = f.node.Start(t)
		f.server.Delete(f.node.Name)
		f.server.Create(f.node.Name, apiserver.Object{"ipam": apiserver.Object{}})
		startBridge(t, f.server, f.node, flags...)
		harness.Eventually(t, "the first publication", func() error {
			if n, _ := f.server.Node(t, f.node.Name); len(n.Pool) == 0 {
				return errors.New("the pool is empty")
			}
			return nil
		})
		f.agent.Start(t)
	})
}

func TestAddressTaken(t *testing.T) {
	t.Parallel()
	f := newFixture(t, false)
	p := f.serve(t, 4, smallFlags()...)
	f.addPods(t, 1)
	f.waitForUsed(t, 1)
	p.end(t, syscall.SIGKILL)
	used := f.agent.Uses()[0]
	f.wipe(t)
	f.daemon.TryRestore(t, used, "another-owner").WantStatus(t, 200)
	f.waitForCondition(t, startBridge(t, f.server, f.node, smallFlags()...), "AddressNotHeld")
	f.eventually(t, "all but the used address to be held", func() error {
		n, _ := f.server.Node(t, f.node.Name)
		held := map[string]bool{}
		for _, a := range f.daemon.List(t) {
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
	f.agent.Free(used)
	f.eventually(t, "the withdrawal after its use", func() error {
		if n, _ := f.server.Node(t, f.node.Name); slices.Contains(slices.Collect(maps.Keys(n.Pool)), used) {
			return fmt.Errorf("%s is still there", used)
		}
		return nil
	})
}
