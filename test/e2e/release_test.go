package e2e

import (
	"net/http"
	"slices"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

func TestReleaseOneFamily(t *testing.T) {
	t.Parallel()
	n := nodeWith(t, harness.DualStack())
	s := n.Start(t)
	held := s.Allocate(t, harness.Request{Owner: "router"})
	s.Release(t, held.Address.IPv4)

	wantLeaseCount(t, n, 2) // one DEL frees both families, after the second release
	if got := s.Attachment(t, "router").Claims; !slices.Equal(got, []string{"ipv6"}) {
		t.Errorf("claims are %q; want ipv6 only", got)
	}
	s.Release(t, held.Address.IPv6)
	wantLeaseCount(t, n, 0)
}

func TestReleaseDelayAfterRestart(t *testing.T) {
	eachNetwork(t, func(t *testing.T, n *harness.Node) {
		s := n.Start(t, "--release-delay=1h")
		given := s.AllocateFor(t, "router")
		s.Release(t, given...)
		before := wantState(t, s, "router", "cooldown")
		if before.ReleaseAt.IsZero() {
			t.Errorf("the attachment in cooldown lacks release-at: %+v", before)
		}
		s.Kill(t)

		s = n.Start(t, "--release-delay=1h")
		after := wantState(t, s, "router", "cooldown")
		if !after.ReleaseAt.Equal(before.ReleaseAt) {
			t.Errorf("release-at was %s and is %s; want the same after a restart", before.ReleaseAt, after.ReleaseAt)
		}
		wantLeased(t, n, given...)
		wantAddresses(t, s.AllocateFor(t, "router"), given)
		wantState(t, s, "router", "held")
	})
}

func TestReleaseDelayEndsWhileStopped(t *testing.T) {
	eachNetwork(t, func(t *testing.T, n *harness.Node) {
		s := n.Start(t, "--release-delay=300ms")
		s.Release(t, s.AllocateFor(t, "router")...)
		s.Kill(t)

		s = n.Start(t, "--release-delay=300ms")
		waitReleased(t, s, "router")
		wantLeaseCount(t, n, 0)
	})
}

func TestExpiration(t *testing.T) {
	eachNetwork(t, func(t *testing.T, n *harness.Node) {
		s := n.Start(t, "--ipam-expiration=500ms")
		for _, owner := range []string{"confirmed", "restored", "forgotten"} {
			got := s.Allocate(t, harness.Request{Owner: owner, Expire: true})
			if got.Address.IPv4ExpirationUUID == "" || got.IPv4.ExpirationUUID != got.Address.IPv4ExpirationUUID {
				t.Fatalf("the response lacks expiration-uuid: %+v", got)
			}
			switch owner {
			case "confirmed":
				s.AllocateFor(t, owner)
			case "restored":
				s.TryRestore(t, got.Address.IPv4, owner).WantStatus(t, http.StatusOK)
			}
		}
		// Its deadline is the last one.
		waitReleased(t, s, "forgotten")
		for _, owner := range []string{"confirmed", "restored"} {
			if a := wantState(t, s, owner, "held"); a.Expiration != nil {
				t.Errorf("owner %s was confirmed and still has the expiration %+v", owner, a.Expiration)
			}
		}
	})
}
