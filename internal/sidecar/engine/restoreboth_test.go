package engine

import (
	"context"
	"testing"
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/plugin/profile"
	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/engine/protocol"
	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/journal/record"
)

// requestsBy makes a plugin honour these conventions for a requested address.
func requestsBy(conventions ...profile.Request) setup {
	return withProfile(hostLocal(), func(p *profile.Profile) { p.Requests = conventions })
}

// tryRestoreBoth restores an address of an owner that knows the one of the other family, too.
func (f *fixture) tryRestoreBoth(owner, ip, also string) error {
	_, err := f.Restore(context.Background(), RestoreRequest{Owner: owner, IP: addr(ip), Also: addr(also)})
	return err
}

func (f *fixture) restoreBoth(owner, ip, also string) {
	f.t.Helper()
	if err := f.tryRestoreBoth(owner, ip, also); err != nil {
		f.t.Fatalf("restore %s and %s for %q: %v", ip, also, owner, err)
	}
}

// wantBoth fails unless the owner holds both addresses, both claimed, and the plugin's store agrees.
func (f *fixture) wantBoth(owner, ipv4, ipv6 string) {
	f.t.Helper()
	f.wantHeld(owner, ipv4)
	f.wantHeld(owner, ipv6)
	a := f.get(owner)
	if len(a.Addrs()) != 2 || !a.Claimed(record.IPv4) || !a.Claimed(record.IPv6) {
		f.t.Errorf("%s holds %v, claims %v; want both families claimed, and no other address", owner, a.Addrs(), a.Claims)
	}
	f.wantStoreAgrees()
}

// A lost journal leaves nothing but the addresses that the clients know.
func TestRestoreBoth(t *testing.T) {
	const v4, v6 = "10.0.0.1", "fd00::1"
	for name, s := range map[string]setup{
		"args.cni.ips":      requestsBy(profile.RequestArgsCNI),
		"every convention":  nil,
		"readable store":    storeReadable,
		"may act late":      withProfile(hostLocal(), func(p *profile.Profile) { p.AddOutlivesSeconds = 60 }),
		"remote store":      withProfile(hostLocal(), func(p *profile.Profile) { p.Store = profile.StoreRemote }),
		"repeatable ADD":    withProfile(sameAnswer()),
		"verified interval": verifyInterval(time.Hour),
	} {
		run(t, name, func(t *testing.T) {
			f := newFixture(t, s)
			f.setStored("a-pod", v4, v6)
			f.allocate("router")
			f.allocate("health")
			f.setStored("a-pod") // the next ADD returns the first free addresses
			f.loseJournal()
			f.restoreBoth("router", "10.0.0.2", "fd00::2")
			f.restoreBoth("router", "fd00::2", "10.0.0.2")
			f.restoreBoth("health", "fd00::3", "10.0.0.3") // IPv6 first
			f.restoreBoth("health", "10.0.0.3", "fd00::3")
			f.wantBoth("router", "10.0.0.2", "fd00::2")
			f.wantBoth("health", "10.0.0.3", "fd00::3")
			f.sleep(time.Hour)
			f.wantStored(2)
		})
	}
	run(t, "one ADD for both", func(t *testing.T) {
		f := newFixture(t)
		f.allocate("router")
		f.loseJournal()
		f.restoreBoth("router", v4, v6)
		f.wantSteps("write adding, DEL, ADD[10.0.0.1 fd00::1], write held")
		if a := f.get("router"); a.Claimed(record.IPv6) {
			t.Error("the other family is claimed before it is restored")
		}
		f.restoreBoth("router", v6, v4)
		f.wantSteps("CHECK, write held")
	})
	run(t, "the store is empty, too", func(t *testing.T) { // such as after an uninstall
		f := newFixture(t, storeReadable)
		f.restoreBoth("router", "10.0.0.7", "fd00::9")
		f.restoreBoth("router", "fd00::9", "10.0.0.7")
		f.wantBoth("router", "10.0.0.7", "fd00::9")
	})
	run(t, "unknown to the client", func(t *testing.T) { // see docs/design/how-it-works.md, Restore
		f := newFixture(t)
		f.setStored("a-pod", v6)
		f.restore("router", v4)
		f.wantError(f.tryRestore("router", v6), protocol.Failed, "holds [10.0.0.1 fd00::2]", v6)
		f.wantHeld("router", v4)
	})
	run(t, "not available", func(t *testing.T) {
		f := newFixture(t)
		f.setStored("a-pod", v6)
		f.restoreBoth("router", v4, v6)
		f.wantSteps("write adding, DEL, ADD[10.0.0.1 fd00::1], write adding, DEL, ADD[10.0.0.1], write held")
		f.wantError(f.tryRestoreBoth("router", v6, v4), protocol.Failed, "holds [10.0.0.1 fd00::2]")
		f.wantHeld("router", v4)
	})
	run(t, "the first is not available", func(t *testing.T) {
		f := newFixture(t)
		f.setStored("a-pod", v4)
		f.wantError(f.tryRestoreBoth("router", v4, v6), protocol.Failed, "not available")
		f.wantNoAttachment()
		f.restoreBoth("router", v6, v4)
		f.wantHeld("router", v6)
	})
	run(t, "only one can be requested", func(t *testing.T) {
		f := newFixture(t, requestsBy(profile.RequestCNIArgs))
		f.restoreBoth("router", v4, v6)
		f.wantSteps("write adding, DEL, ADD[10.0.0.1], write held")
	})
	run(t, "none can be requested", func(t *testing.T) {
		f := newFixture(t, withProfile(pluginProfile("unknown")))
		f.restoreBoth("router", v4, v6)
		f.wantSteps("write adding, DEL, ADD[], write held")
	})
	run(t, "of another owner", func(t *testing.T) {
		f := newFixture(t)
		f.allocate("health")
		f.steps()
		f.restoreBoth("router", "10.0.0.9", v6)
		f.wantSteps("write adding, DEL, ADD[10.0.0.9], write held")
		f.wantBoth("health", v4, v6)
	})
	run(t, "of the same family", func(t *testing.T) {
		f := newFixture(t)
		f.restoreBoth("router", v4, "10.0.0.2")
		f.wantSteps("write adding, DEL, ADD[10.0.0.1], write held")
	})
	run(t, "family disabled", func(t *testing.T) {
		f := newFixture(t, ipv6Disabled, ipv4Only)
		f.restoreBoth("router", v4, v6)
		f.wantSteps("write adding, DEL, ADD[10.0.0.1], write held")
	})
	run(t, "the owner holds the first", func(t *testing.T) {
		f := newFixture(t)
		f.allocate("router")
		f.steps()
		f.restoreBoth("router", v4, "fd00::9")
		f.wantSteps("CHECK")
		f.wantBoth("router", v4, v6)
	})
	run(t, "the store has another one", func(t *testing.T) { // which is the owner's
		f := newFixture(t, storeReadable)
		f.allocate("router")
		f.loseJournal()
		f.wantError(f.tryRestoreBoth("router", "10.0.0.50", "fd00::50"), protocol.Failed, "holds [10.0.0.1 fd00::1]")
		f.wantSteps("lookup, write held")
	})
	run(t, "being released", func(t *testing.T) {
		f := newFixture(t)
		f.allocate("router")
		f.release(v4)
		f.inject(once("DEL", refused))
		f.wantError(f.tryRelease(v6), protocol.Failed)
		f.restoreBoth("router", v4, v6)
		f.restoreBoth("router", v6, v4)
		f.wantBoth("router", v4, v6)
	})
	run(t, "killed after each step", func(t *testing.T) {
		for _, step := range []string{"write adding", "DEL", "ADD", "write held"} {
			for _, kill := range []fault{killBefore, killAfter} {
				f := newFixture(t)
				f.allocate("router")
				f.loseJournal()
				f.inject(once(step, kill))
				_ = f.tryRestoreBoth("router", v4, v6)
				f.restart()
				f.sleep(time.Hour)
				f.restoreBoth("router", v4, v6)
				f.restoreBoth("router", v6, v4)
				f.wantBoth("router", v4, v6)
				f.wantStored(1)
			}
		}
	})
}
