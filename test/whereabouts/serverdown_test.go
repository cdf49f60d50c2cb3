package whereabouts

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/delegated-ipam/delegated-ipam/test/cluster"
	"github.com/delegated-ipam/delegated-ipam/test/harness"
	"github.com/delegated-ipam/delegated-ipam/test/oracle"
)

// retryLimit is when a test gives up waiting for background work, which waits up to 60 s for late
// effects of an ADD or DEL, and longer after each failure.
const retryLimit = 10 * time.Minute

// downCase prepares a case, and returns what it does while the API server is down and afterwards.
type downCase func(*testing.T, *testbed) (down, after func(*testing.T))

// testServerDown runs its cases while the API server is down once.
func testServerDown(t *testing.T, tb *testbed) {
	downs, afters := map[string]func(*testing.T){}, map[string]func(*testing.T){}
	for name, prepare := range map[string]downCase{
		"allocate":           allocateDown,
		"allocates running":  allocatesRunning,
		"release":            releaseDown,
		"restart":            restartDown,
		"DEL of the plugin":  delDown,
		"release, then kill": releaseAndKillDown,
	} {
		downs[name], afters[name] = prepare(t, tb)
	}
	concurrently := func(t *testing.T, cases map[string]func(*testing.T)) {
		for name, test := range cases {
			t.Run(name, func(t *testing.T) { t.Parallel(); test(t) })
		}
	}
	tb.APIServer.End(syscall.SIGKILL)
	t.Run("down", func(t *testing.T) { concurrently(t, downs) })
	tb.APIServer.MustStart(t)
	tb.WaitReady(t)
	t.Run("up again", func(t *testing.T) { concurrently(t, afters) })
}

// startedNode returns a node whose owner router has an address.
func startedNode(t *testing.T, tb *testbed, flags ...string) (ns *namespace, n *harness.Node, s *harness.Sidecar, router []string) {
	t.Helper()
	ns = tb.newNamespace(t)
	n = ns.newNode(t, ipv4Range)
	s = n.Start(t, flags...)
	return ns, n, s, s.AllocateFor(t, "router")
}

// An allocate fails; the owner gets an address later. After the DEL with an unknown outcome it has
// a container ID of a later generation, which a lost journal does not leak either.
func allocateDown(t *testing.T, tb *testbed) (down, after func(*testing.T)) {
	_, n, s, router := startedNode(t, tb, "--plugin-timeout=10s")
	parent := t
	down = func(t *testing.T) {
		s.TryAllocate(t, harness.Request{Owner: "health"}).WantError(t, http.StatusBadGateway, "did not end within 10s")
		wantSame(t, s, map[string][]string{"router": router}) // held addresses need no plugin
	}
	after = func(t *testing.T) {
		health := waitAllocated(t, s, "health")
		if slices.Equal(health, router) {
			t.Errorf("router and health both have %q", router)
		}
		s.WaitConsistent(t)
		held := map[string][]string{"router": router, "health": health}
		wantSame(t, s, held)
		if a := s.Attachment(t, "health"); a == nil || !strings.Contains(a.ContainerID, "-g") {
			t.Errorf("health has the attachment %+v; want a container ID of a generation above 0", a)
		}
		s.Kill(t)
		n.WipeJournal(t)
		s = n.Start(parent)
		wantSame(t, s, held)
		s.WaitConsistent(t)
	}
	return down, after
}

// waitAllocated requests an address until the owner gets it.
func waitAllocated(t *testing.T, s *harness.Sidecar, owner string) (ips []string) {
	t.Helper()
	cluster.MustEventually(t, owner+" to get an address", retryLimit, func() error {
		response := s.TryAllocate(t, harness.Request{Owner: owner})
		if response.Status != http.StatusCreated {
			return errors.New(response.String())
		}
		ips = response.Allocation(t).Addresses()
		return nil
	})
	return ips
}

// Some ADDs are running when the API server ends. No address is leaked or allocated twice.
func allocatesRunning(t *testing.T, tb *testbed) (down, after func(*testing.T)) {
	_, _, s, _ := startedNode(t, tb, "--plugin-timeout=10s")
	const clients = 4
	var wg sync.WaitGroup
	requested := make([]int, clients) // each client counts its owners
	ownerOf := func(client, i int) string { return fmt.Sprintf("owner-%d-%d", client, i) }
	started := make(chan struct{}, clients)
	for client := range clients {
		wg.Go(func() {
			for status := http.StatusCreated; status == http.StatusCreated; {
				response, err := s.Try(http.MethodPost, "/v1/ipam?owner="+ownerOf(client, requested[client]))
				if err != nil {
					t.Error(err)
					return
				}
				status = response.Status
				if requested[client]++; requested[client] == 1 {
					started <- struct{}{}
				}
			}
		})
	}
	t.Cleanup(wg.Wait)
	for range clients {
		<-started
	}
	down = func(*testing.T) { wg.Wait() }
	after = func(t *testing.T) {
		holder := map[string]string{}
		for client := range clients {
			for i := range requested[client] {
				owner := ownerOf(client, i)
				for _, ip := range waitAllocated(t, s, owner) {
					if other, taken := holder[ip]; taken {
						t.Errorf("%s and %s both have %s", other, owner, ip)
					}
					holder[ip] = owner
				}
			}
		}
		s.WaitConsistent(t)
	}
	return down, after
}

// A DEL with the default time limit is terminated before it would report success, so it is retried.
func releaseDown(t *testing.T, tb *testbed) (down, after func(*testing.T)) {
	ns, _, s, router := startedNode(t, tb)
	before := ns.mustReservations(t)
	health := s.AllocateFor(t, "health")
	down = func(t *testing.T) {
		s.TryRelease(t, health[0]).WantError(t, http.StatusInternalServerError, "did not end within 30s", "retried")
		wantReleasing(t, s, "health")
	}
	after = func(t *testing.T) { ns.wantHealthReleased(t, s, before, router) }
	return down, after
}

// wantHealthReleased waits for the release of health, after which the pool is as before, and the router
// has its address.
func (ns *namespace) wantHealthReleased(t *testing.T, s *harness.Sidecar, before []oracle.Lease, router []string) {
	t.Helper()
	waitReleased(t, s, "health")
	ns.wantUnchanged(t, before)
	wantSame(t, s, map[string][]string{"router": router})
}

// The DEL of a killed sidecar is retried by the next one.
func releaseAndKillDown(t *testing.T, tb *testbed) (down, after func(*testing.T)) {
	ns, n, s, router := startedNode(t, tb)
	before := ns.mustReservations(t)
	health := s.AllocateFor(t, "health")
	parent := t
	down = func(t *testing.T) {
		go func(s *harness.Sidecar) { _, _ = s.Try(http.MethodDelete, "/v1/ipam/"+health[0]) }(s) // it ends with the sidecar
		harness.Eventually(t, "the release to begin", func() error { return releasing(t, s, "health") })
		s.Kill(t)
		s = n.Start(parent)
		wantReleasing(t, s, "health")
	}
	after = func(t *testing.T) { ns.wantHealthReleased(t, s, before, router) }
	return down, after
}

func restartDown(t *testing.T, tb *testbed) (down, after func(*testing.T)) {
	ns, n, s, router := startedNode(t, tb)
	before := ns.mustReservations(t)
	parent := t
	down = func(t *testing.T) {
		s.Kill(t)
		s = n.Start(parent)
		wantSame(t, s, map[string][]string{"router": router})
	}
	after = func(t *testing.T) {
		wantSame(t, s, map[string][]string{"router": router})
		ns.wantUnchanged(t, before)
	}
	return down, after
}

// The plugin gives up after 60 s and reports a success.
func delDown(t *testing.T, tb *testbed) (down, after func(*testing.T)) {
	ns := tb.newNamespace(t)
	ns.mustRun(t, add("a1", podA), firstIP)
	down = func(t *testing.T) { ns.mustRun(t, del("a1", podA)) }
	after = func(t *testing.T) { ns.wantReserved(t, "10.15.0.1 a1 eth0") }
	return down, after
}

// releasing returns nil if the owner's attachment is releasing.
func releasing(t *testing.T, s *harness.Sidecar, owner string) error {
	t.Helper()
	if a := s.Attachment(t, owner); a == nil || a.State != "releasing" {
		return fmt.Errorf("the attachment of %s is %+v; want it releasing", owner, a)
	}
	return nil
}

func wantReleasing(t *testing.T, s *harness.Sidecar, owner string) {
	t.Helper()
	if err := releasing(t, s, owner); err != nil {
		t.Error(err)
	}
}

// waitReleased waits until the owner has no attachment.
func waitReleased(t *testing.T, s *harness.Sidecar, owner string) {
	t.Helper()
	cluster.MustEventually(t, owner+" to be released", retryLimit, func() error {
		if a := s.Attachment(t, owner); a != nil {
			return fmt.Errorf("it has the attachment %+v", *a)
		}
		return nil
	})
}
