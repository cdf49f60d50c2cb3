package e2e

import (
	"fmt"
	"net/http"
	"slices"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

func TestRelease(t *testing.T) {
	eachNetwork(t, func(t *testing.T, n *harness.Node) {
		s := n.Start(t)
		kept := s.Allocate(t, harness.Request{Owner: "health"}).Addresses()
		given := s.Allocate(t, harness.Request{Owner: "router"}).Addresses()
		s.Release(t, given...)

		wantLeases(t, n, len(kept))
		wantLeased(t, n, kept...)
		if got := s.Attachment(t, "router"); got != nil {
			t.Errorf("list still has %+v", got)
		}
	})
}

func TestReleaseOneFamily(t *testing.T) {
	t.Parallel()
	n := nodeWith(t, harness.DualStack())
	s := n.Start(t)
	held := s.Allocate(t, harness.Request{Owner: "router"})
	s.Release(t, held.Address.IPv4)

	wantLeases(t, n, 2) // one DEL frees both families, so it waits for the second release
	if got := s.Attachment(t, "router").Claims; !slices.Equal(got, []string{"ipv6"}) {
		t.Errorf("claims are %q; want ipv6 only", got)
	}
	s.Release(t, held.Address.IPv6)
	wantLeases(t, n, 0)
}

func TestReleaseDelayAfterRestart(t *testing.T) {
	eachNetwork(t, func(t *testing.T, n *harness.Node) {
		s := n.Start(t, "--release-delay=1h")
		given := s.Allocate(t, harness.Request{Owner: "router"}).Addresses()
		s.Release(t, given...)
		before := wantState(t, s, "router", "cooldown")
		if before.ReleaseAt.IsZero() {
			t.Errorf("the cooldown attachment names no release-at: %+v", before)
		}
		s.Kill(t)

		s = n.Start(t, "--release-delay=1h")
		after := wantState(t, s, "router", "cooldown")
		if !after.ReleaseAt.Equal(before.ReleaseAt) {
			t.Errorf("release-at was %s and is %s; want the same after a restart", before.ReleaseAt, after.ReleaseAt)
		}
		wantLeased(t, n, given...)
		wantAddresses(t, s.Allocate(t, harness.Request{Owner: "router"}).Addresses(), given)
		wantState(t, s, "router", "held")
	})
}

func TestReleaseDelayEndsWhileStopped(t *testing.T) {
	eachNetwork(t, func(t *testing.T, n *harness.Node) {
		s := n.Start(t, "--release-delay=300ms")
		s.Release(t, s.Allocate(t, harness.Request{Owner: "router"}).Addresses()...)
		s.Kill(t)

		s = n.Start(t, "--release-delay=300ms")
		wantGone(t, s, "router")
		wantLeases(t, n, 0)
	})
}

func TestExpiration(t *testing.T) {
	eachNetwork(t, func(t *testing.T, n *harness.Node) {
		s := n.Start(t, "--ipam-expiration=500ms")
		for _, owner := range []string{"confirmed", "restored", "forgotten"} {
			got := s.Allocate(t, harness.Request{Owner: owner, Expire: true})
			if got.Address.IPv4ExpirationUUID == "" || got.IPv4.ExpirationUUID != got.Address.IPv4ExpirationUUID {
				t.Fatalf("the answer has no expiration-uuid: %+v", got)
			}
			switch owner {
			case "confirmed":
				s.Allocate(t, harness.Request{Owner: owner})
			case "restored":
				s.TryRestore(t, got.Address.IPv4, owner).WantStatus(t, http.StatusOK)
			}
		}
		// The deadlines of the confirmed ones were earlier than that of the last one.
		wantGone(t, s, "forgotten")
		for _, owner := range []string{"confirmed", "restored"} {
			if a := wantState(t, s, owner, "held"); a.Expiration != nil {
				t.Errorf("owner %s was confirmed and still has the expiration %+v", owner, a.Expiration)
			}
		}
	})
}

func TestExpirationAfterRestart(t *testing.T) {
	t.Parallel()
	n := nodeWith(t, harness.DualStack())
	s := n.Start(t, "--ipam-expiration=1h")
	s.Allocate(t, harness.Request{Owner: "router", Expire: true})
	before := s.Attachment(t, "router").Expiration
	s.Kill(t)

	s = n.Start(t, "--ipam-expiration=1h")
	after := s.Attachment(t, "router").Expiration
	if before == nil || after == nil || before.UUID != after.UUID || !before.Deadline.Equal(after.Deadline) {
		t.Errorf("the expiration was %+v and is %+v; want the same after a restart", before, after)
	}
}

// wantState returns the attachment of an owner, which must be in that state.
func wantState(t *testing.T, s *harness.Sidecar, owner, state string) harness.Attachment {
	t.Helper()
	a := s.Attachment(t, owner)
	if a == nil || a.State != state {
		t.Fatalf("the attachment of %s is %+v; want state %s", owner, a, state)
	}
	return *a
}

// wantGone waits until the list does not have the owner any more.
func wantGone(t *testing.T, s *harness.Sidecar, owner string) {
	t.Helper()
	harness.Eventually(t, "the attachment of "+owner+" to be given back", func() error {
		if a := s.Attachment(t, owner); a != nil {
			return fmt.Errorf("list has %+v", *a)
		}
		return nil
	})
}
