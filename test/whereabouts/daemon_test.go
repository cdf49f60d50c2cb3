package whereabouts

import (
	"encoding/json"
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

// owners are the agent's own ones and one that looks like a pod.
func owners() []string { return []string{"router", "health", "ingress", "default/app-1"} }

// allocateAll allocates for each owner, concurrently, and returns the addresses by owner, all of
// which must be distinct.
func allocateAll(t *testing.T, s *harness.Daemon) map[string][]string {
	t.Helper()
	var requests []harness.Request
	for _, owner := range owners() {
		requests = append(requests, harness.Request{Owner: owner})
	}
	held, holder := map[string][]string{}, map[string]string{}
	for i, response := range s.AllocateConcurrently(t, requests) {
		owner := requests[i].Owner
		held[owner] = response.Allocation(t).Addresses()
		for _, ip := range held[owner] {
			if other, taken := holder[ip]; taken {
				t.Errorf("%s was allocated to %s and %s", ip, other, owner)
			}
			holder[ip] = owner
		}
	}
	return held
}

func wantSame(t *testing.T, s *harness.Daemon, held map[string][]string) {
	t.Helper()
	for owner, want := range held {
		if got := s.AllocateFor(t, owner); len(want) == 0 || !slices.Equal(got, want) {
			t.Errorf("%s got %q; want %q", owner, got, want)
		}
	}
}

func (ns *namespace) wantUnchanged(t *testing.T, before []oracle.Lease) {
	t.Helper()
	if now := ns.mustReservations(t); len(before) == 0 || !slices.Equal(now, before) {
		t.Errorf("the IPPools had %v and have %v; want no change", before, now)
	}
}

var daemonCases = cases{
	"allocate": func(t *testing.T, ns *namespace) {
		testAllocate(t, ns, ipv4Range)
		if got := ns.overlapping(t); len(got) != 0 {
			t.Errorf("the OverlappingRangeIPReservations are %q; want none", got)
		}
	},
	"allocate dual-stack": func(t *testing.T, ns *namespace) { testAllocate(t, ns, ipv4Range, ipv6Range) },
	"verify": func(t *testing.T, ns *namespace) {
		testKept(t, ns, []string{"--verify-interval=0s"}, func(*harness.Node, *harness.Daemon) {})
	},
	"restart after SIGTERM": func(t *testing.T, ns *namespace) {
		testKept(t, ns, nil, func(_ *harness.Node, s *harness.Daemon) { s.Stop(t) })
	},
	"restart after SIGKILL": func(t *testing.T, ns *namespace) {
		testKept(t, ns, nil, func(_ *harness.Node, s *harness.Daemon) { s.Kill(t) })
	},
	"lost journal": func(t *testing.T, ns *namespace) {
		testKept(t, ns, nil, func(n *harness.Node, s *harness.Daemon) { lose(t, n, s) })
	},
	"interrupted release": testReleaseInterrupted,
	"profile try":         testTry,
	"second sandbox":      testSecondSandbox,
	"lost range":          testLostRange,
	"reclaim":             testReclaim,
	"reclaim lost nodes":  testReclaimLostNodes,
	// A time limit that whereabouts' DEL would not reach is refused.
	"plugin-timeout too long": func(t *testing.T, ns *namespace) {
		s := ns.newNode(t, ipv4Range).Launch(t, "--plugin-timeout=60s")
		s.WaitServing(t)
		s.WaitNotReady(t, "--plugin-timeout is 1m0s")
		s.TryAllocate(t, harness.Request{Owner: "router"}).WantError(t, http.StatusBadGateway, "--plugin-timeout is 1m0s")
		ns.wantReserved(t)
	},
	"update forbidden": func(t *testing.T, ns *namespace) { testReleaseRefused(t, ns, forbidUpdates) },
	"update invalid":   func(t *testing.T, ns *namespace) { testReleaseRefused(t, ns, invalidateUpdates) },
	"update delayed":   func(t *testing.T, ns *namespace) { testReleaseRefused(t, ns, delayUpdates) },
}

func testAllocate(t *testing.T, ns *namespace, subnets ...string) {
	s := ns.newNode(t, subnets...).Start(t)
	held := allocateAll(t, s)
	s.WaitConsistent(t)
	if got := ns.mustReservations(t); len(got) != len(subnets)*len(owners()) {
		t.Errorf("the IPPools have %v; want %d reservations for each of %q", got, len(subnets), owners())
	}
	for _, ips := range held {
		s.Release(t, ips...)
	}
	ns.wantReserved(t)
}

// testKept wants each owner to keep its addresses when the daemon ends by a function.
func testKept(t *testing.T, ns *namespace, flags []string, end func(*harness.Node, *harness.Daemon)) {
	n := ns.newNode(t, ipv4Range)
	s := n.Start(t, flags...)
	held := allocateAll(t, s)
	before := ns.mustReservations(t)
	if end(n, s); flags == nil {
		s = n.Start(t)
	}
	// In another order, so that a plugin without the reservations would give other addresses.
	for _, owner := range slices.Backward(owners()) {
		wantSame(t, s, map[string][]string{owner: held[owner]})
	}
	s.WaitConsistent(t)
	ns.wantUnchanged(t, before)
}

// wantDanger wants the daemon's profile of whereabouts to name a danger.
func wantDanger(t *testing.T, s *harness.Daemon, text string) {
	t.Helper()
	profile := s.Health(t).DelegatedIPAM.Pools[0].Profile
	if dangers := fmt.Sprint(profile["dangers"]); !strings.Contains(dangers, text) {
		t.Errorf("the profile's dangers are %s; want one with %q", dangers, text)
	}
}

// testReleaseRefused shows a danger of the profile: the daemon cannot see that a DEL released
// nothing.
func testReleaseRefused(t *testing.T, ns *namespace, refuse refusal) {
	n := ns.newNode(t, ipv4Range)
	s := n.Start(t)
	router, health := s.AllocateFor(t, "router"), s.AllocateFor(t, "health")
	before := ns.mustReservations(t)
	allow := refuse(ns, t, ipv4Range)
	s.Release(t, health...)
	if a := s.Attachment(t, "health"); a != nil {
		t.Errorf("health has the attachment %+v; want none", *a)
	}
	allow()
	ns.wantUnchanged(t, before)
	wantDanger(t, s, "DEL reports success when the API server refuses the change")

	ingress := s.AllocateFor(t, "ingress")
	if slices.Contains([]string{router[0], health[0]}, ingress[0]) {
		t.Errorf("ingress got %s, which is still reserved", ingress[0])
	}
	// The reservation has the pod of the owner, which gets it again.
	n.ResetHistory() // the released address was not free
	wantSame(t, s, map[string][]string{"router": router, "health": health, "ingress": ingress})
	s.WaitConsistent(t)
}

// testLostRange loses the reservations of one of two ranges. whereabouts then gives a pod's address to each new pod.
func testLostRange(t *testing.T, ns *namespace) {
	n := ns.newNode(t, ipv4Range, ipv6Range)
	pods := n.PodsThrough(t, "05-pods", harness.Network{Name: networkName, CNIVersion: "1.0.0", Plugin: "whereabouts", IPAM: ns.ipam(ipv4Range, ipv6Range)})
	s := n.Start(t)
	pods.Name = "web-0"
	one := pods.Add(t, "one")
	ns.loseRange(t, ipv6Range)
	pods.Name = "web-1"
	two := pods.Add(t, "two")
	if slices.Contains(two, one[1]) || !s.Attachment(t, "cni/one/eth0").Lost {
		t.Errorf("the pods have %q and %q; want different addresses, and the loss", one, two)
	}
	kept := func(l oracle.Lease) bool { return l.IP.String() == one[1] }
	if all := ns.mustReservations(t); !slices.ContainsFunc(all, kept) {
		t.Errorf("the IPPools have %v; want %s, which a pod uses", all, one[1])
	}
	pods.Del(t, "two")
	pods.Name = "web-0"
	pods.Del(t, "one")
	ns.wantReserved(t)
}

// testReleaseInterrupted shows a danger of the profile: the DEL that follows one that ended between
// two ranges reports success at the first range, in which the ID has nothing any more.
func testReleaseInterrupted(t *testing.T, ns *namespace) {
	s := ns.newNode(t, ipv4Range, ipv6Range).Start(t, "--plugin-timeout=5s")
	router := s.AllocateFor(t, "router")
	id := s.Attachment(t, "router").ContainerID
	allow := delayUpdates(ns, t, ipv6Range)
	s.TryRelease(t, router[0]).WantStatus(t, http.StatusOK) // drops one of two claims
	s.TryRelease(t, router[1]).WantError(t, http.StatusInternalServerError, "did not end within 5s")
	waitReleased(t, s, "router")
	allow()
	ns.wantReserved(t, router[1]+" "+id+" eth0")
	wantDanger(t, s, "between two ranges")

	now := s.AllocateFor(t, "router")
	if now[1] != router[1] {
		t.Errorf("router got %q; want its IPv6 address %s again", now, router[1])
	}
	s.WaitConsistent(t)
}

// testSecondSandbox runs two sandboxes of one pod, which are one to whereabouts, as a runtime does that starts the
// second before it has removed the first, and calls DEL after its failed ADD.
func testSecondSandbox(t *testing.T, ns *namespace) {
	n := ns.newNode(t, ipv4Range)
	pods := n.PodsThrough(t, "05-pods", harness.Network{Name: networkName, CNIVersion: "1.0.0", Plugin: "whereabouts", IPAM: ns.ipam(ipv4Range)})
	pods.Name = "web-0"
	n.Start(t)
	ip := pods.Add(t, "one")[0]
	if ips, err := pods.TryAdd("two"); err == nil || !strings.Contains(err.Error(), "nothing was released") {
		t.Errorf("the second sandbox got %q, %v; want an error", ips, err)
	}
	ns.wantReserved(t, ip+" one eth0")
	pods.Del(t, "two")
	ns.wantReserved(t, ip+" one eth0")
	pods.Del(t, "one")
	ns.wantReserved(t)
}

// testTry runs "profile try" while a daemon runs: it proposes the profile as it is, and nothing else
// than the daemon's reservation is left.
func testTry(t *testing.T, ns *namespace) {
	n := ns.newNode(t, ipv4Range)
	s := n.Start(t)
	s.AllocateFor(t, "router")
	before := ns.mustReservations(t)
	out := n.Command(t, "profile", "try", "whereabouts", "--output=json", "--cni-conf-dir="+n.ConfDir, "--cni-bin-dir="+n.BinDir)
	var report struct {
		Differences, Leftovers []any
		Proposal               map[string]any
	}
	if err := json.Unmarshal([]byte(out.Stdout), &report); err != nil {
		t.Fatalf("exit code %d, %q, %q: %v", out.ExitCode, out.Stdout, out.Stderr, err)
	}
	if len(report.Differences)+len(report.Leftovers) > 0 || out.ExitCode != 0 || report.Proposal["type"] != "whereabouts" {
		t.Errorf("exit code %d, %+v; want 0, no differences, no leftovers and the profile; %s", out.ExitCode, report, out.Stderr)
	}
	ns.wantUnchanged(t, before)
}

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
		"release":            releaseDown(false),
		"restart":            restartDown,
		"DEL of the plugin":  delDown,
		"release, then kill": releaseDown(true),
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
func startedNode(t *testing.T, tb *testbed, flags ...string) (ns *namespace, n *harness.Node, s *harness.Daemon, router []string) {
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

func waitAllocated(t *testing.T, s *harness.Daemon, owner string) (ips []string) {
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

// A DEL with the default time limit is terminated before it would report success, so it is retried, by the next
// daemon if this one is killed.
func releaseDown(kill bool) downCase {
	return func(t *testing.T, tb *testbed) (down, after func(*testing.T)) {
		ns, n, s, router := startedNode(t, tb)
		before := ns.mustReservations(t)
		health := s.AllocateFor(t, "health")
		parent := t
		down = func(t *testing.T) {
			if kill {
				go func(s *harness.Daemon) { _, _ = s.Try(http.MethodDelete, "/v1/ipam/"+health[0]) }(s) // it ends with the daemon
				harness.Eventually(t, "the release to begin", func() error { return releasing(t, s, "health") })
				s.Kill(t)
				s = n.Start(parent)
			} else {
				s.TryRelease(t, health[0]).WantError(t, http.StatusInternalServerError, "did not end within 30s", "retried")
			}
			if err := releasing(t, s, "health"); err != nil {
				t.Error(err)
			}
		}
		after = func(t *testing.T) {
			waitReleased(t, s, "health")
			ns.wantUnchanged(t, before)
			wantSame(t, s, map[string][]string{"router": router})
		}
		return down, after
	}
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

func releasing(t *testing.T, s *harness.Daemon, owner string) error {
	t.Helper()
	if a := s.Attachment(t, owner); a == nil || a.State != "releasing" {
		return fmt.Errorf("the attachment of %s is %+v; want it releasing", owner, a)
	}
	return nil
}

func waitReleased(t *testing.T, s *harness.Daemon, owner string) {
	t.Helper()
	cluster.MustEventually(t, owner+" to be released", retryLimit, func() error {
		if a := s.Attachment(t, owner); a != nil {
			return fmt.Errorf("it has the attachment %+v", *a)
		}
		return nil
	})
}
