package whereabouts

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/test/harness"
	"github.com/delegated-ipam/delegated-ipam/test/oracle"
)

// owners are the agent's own ones and one that looks like a pod.
func owners() []string { return []string{"router", "health", "ingress", "default/app-1"} }

// allocateAll allocates for each owner, concurrently, and returns the addresses by owner, all of
// which must be distinct.
func allocateAll(t *testing.T, s *harness.Sidecar) map[string][]string {
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

// wantSame wants each owner to get the addresses that it has.
func wantSame(t *testing.T, s *harness.Sidecar, held map[string][]string) {
	t.Helper()
	for owner, want := range held {
		if got := s.AllocateFor(t, owner); len(want) == 0 || !slices.Equal(got, want) {
			t.Errorf("%s got %q; want %q", owner, got, want)
		}
	}
}

// wantUnchanged wants the same reservations as before.
func (ns *namespace) wantUnchanged(t *testing.T, before []oracle.Lease) {
	t.Helper()
	if now := ns.mustReservations(t); len(before) == 0 || !slices.Equal(now, before) {
		t.Errorf("the IPPools had %v and have %v; want no change", before, now)
	}
}

func testAllocate(t *testing.T, tb *testbed) {
	ns := tb.newNamespace(t)
	s := ns.newNode(t, ipv4Range).Start(t)
	held := allocateAll(t, s)
	s.WaitConsistent(t)
	if got := ns.mustReservations(t); len(got) != len(owners()) {
		t.Errorf("the IPPools have %v; want one reservation for each of %q", got, owners())
	}
	for _, ips := range held {
		s.Release(t, ips...)
	}
	ns.wantReserved(t)
	if got := ns.overlapping(t); len(got) != 0 {
		t.Errorf("the OverlappingRangeIPReservations are %q; want none", got)
	}
}

func testAllocateDualStack(t *testing.T, tb *testbed) {
	ns := tb.newNamespace(t)
	s := ns.newNode(t, ipv4Range, ipv6Range).Start(t)
	held := allocateAll(t, s)
	s.WaitConsistent(t)
	if got := ns.mustReservations(t); len(got) != 2*len(owners()) {
		t.Errorf("the IPPools have %v; want two reservations for each of %q", got, owners())
	}
	for _, ips := range held {
		s.Release(t, ips...)
	}
	ns.wantReserved(t)
}

func testVerify(t *testing.T, tb *testbed) {
	ns := tb.newNamespace(t)
	s := ns.newNode(t, ipv4Range).Start(t, "--verify-interval=0s")
	held := allocateAll(t, s)
	before := ns.mustReservations(t)
	wantSame(t, s, held)
	ns.wantUnchanged(t, before)
}

func testRestart(t *testing.T, tb *testbed, end func(*harness.Sidecar, testing.TB)) {
	ns := tb.newNamespace(t)
	n := ns.newNode(t, ipv4Range)
	s := n.Start(t)
	held := allocateAll(t, s)
	before := ns.mustReservations(t)
	end(s, t)

	s = n.Start(t)
	wantSame(t, s, held)
	ns.wantUnchanged(t, before)
}

func testLostJournal(t *testing.T, tb *testbed) {
	ns := tb.newNamespace(t)
	n := ns.newNode(t, ipv4Range)
	s := n.Start(t)
	held := allocateAll(t, s)
	before := ns.mustReservations(t)
	s.Kill(t)
	n.WipeJournal(t)

	s = n.Start(t)
	// In another order, so that a plugin without the reservations would give other addresses.
	for _, owner := range slices.Backward(owners()) {
		if got := s.AllocateFor(t, owner); !slices.Equal(got, held[owner]) {
			t.Errorf("%s got %q; want %q", owner, got, held[owner])
		}
	}
	s.WaitConsistent(t)
	ns.wantUnchanged(t, before)
}

// wantDanger wants the sidecar's profile of whereabouts to name a danger.
func wantDanger(t *testing.T, s *harness.Sidecar, text string) {
	t.Helper()
	profile := s.Health(t).DelegatedIPAM.Pools[0].Profile
	if dangers := fmt.Sprint(profile["dangers"]); !strings.Contains(dangers, text) {
		t.Errorf("the profile's dangers are %s; want one with %q", dangers, text)
	}
}

// testReleaseRefused shows a danger of the profile: the sidecar cannot see that a DEL released
// nothing.
func testReleaseRefused(t *testing.T, tb *testbed, refuse refusal) {
	ns := tb.newNamespace(t)
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

// testReleaseInterrupted shows a danger of the profile: the DEL that follows one that ended between
// two ranges reports success at the first range, in which the ID has nothing any more.
func testReleaseInterrupted(t *testing.T, tb *testbed) {
	ns := tb.newNamespace(t)
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

// testPluginTimeout wants a time limit refused that whereabouts' DEL would not reach.
func testPluginTimeout(t *testing.T, tb *testbed) {
	ns := tb.newNamespace(t)
	s := ns.newNode(t, ipv4Range).Launch(t, "--plugin-timeout=60s")
	s.WaitServing(t)
	s.WaitNotReady(t, "--plugin-timeout is 1m0s")
	s.TryAllocate(t, harness.Request{Owner: "router"}).WantError(t, http.StatusBadGateway, "--plugin-timeout is 1m0s")
	ns.wantReserved(t)
}
