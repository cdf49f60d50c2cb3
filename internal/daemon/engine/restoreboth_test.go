package engine

import (
	"testing"
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/daemon/attachment"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/profile"
)

// requestsBy makes a plugin honour these conventions for a requested address.
func requestsBy(conventions ...profile.Request) setup {
	return changedProfile(func(p *profile.Profile) { p.Requests = conventions })
}

// wantBoth fails unless the owner holds both addresses, both claimed, and the plugin's store agrees.
func (f *fixture) wantBoth(owner, ipv4, ipv6 string) {
	f.t.Helper()
	f.wantHeld(owner, ipv4)
	f.wantHeld(owner, ipv6)
	a := f.get(owner)
	if len(a.Addrs()) != 2 || !a.Claimed(attachment.IPv4) || !a.Claimed(attachment.IPv6) {
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
		"may act late":      hostLocalActsLate,
		"remote store":      changedProfile(func(p *profile.Profile) { p.Store = profile.StoreRemote }),
		"repeatable ADD":    withProfile(sameAnswer()),
		"verified interval": verifyInterval(time.Hour),
	} {
		run(t, name, with(s), func(f *fixture) {
			f.setStored("a-pod", v4, v6)
			f.allocate("router")
			f.allocate("health")
			f.setStored("a-pod") // the next ADD returns the first free addresses
			f.loseJournal()
			f.restore("router", "10.0.0.2", "fd00::2")
			f.restore("router", "fd00::2", "10.0.0.2")
			f.restore("health", "fd00::3", "10.0.0.3") // IPv6 first
			f.restore("health", "10.0.0.3", "fd00::3")
			f.wantBoth("router", "10.0.0.2", "fd00::2")
			f.wantBoth("health", "10.0.0.3", "fd00::3")
			f.sleep(time.Hour)
			f.wantStored(2)
		})
	}
	run(t, "one ADD for both", nil, func(f *fixture) {
		f.allocate("router")
		f.loseJournal()
		f.restore("router", v4, v6)
		f.wantSteps("write adding, DEL, ADD[10.0.0.1 fd00::1], write held")
		if a := f.get("router"); a.Claimed(attachment.IPv6) {
			f.t.Error("the other family is claimed before it is restored")
		}
		f.restore("router", v6, v4)
		f.wantSteps("CHECK, write held")
	})
	run(t, "not available", nil, func(f *fixture) {
		f.setStored("a-pod", v6)
		f.restore("router", v4, v6)
		f.wantSteps("write adding, DEL, ADD[10.0.0.1 fd00::1], write adding, DEL, ADD[10.0.0.1], write held")
		f.wantError(f.tryRestore("router", v6, v4), attachment.Failed, "holds [10.0.0.1 fd00::2]")
		f.wantHeld("router", v4)
	})
	run(t, "the first is not available", nil, func(f *fixture) {
		f.setStored("a-pod", v4)
		f.wantError(f.tryRestore("router", v4, v6), attachment.Failed, "not available")
		f.wantNoAttachment()
		f.restore("router", v6, v4)
		f.wantHeld("router", v6)
	})
	for name, c := range map[string]struct {
		setups    []setup
		also, add string
	}{
		"only one can be requested": {with(requestsBy(profile.RequestCNIArgs)), v6, "ADD[10.0.0.1]"},
		"none can be requested":     {with(withProfile(pluginProfile("unknown"))), v6, "ADD[]"},
		"of the same family":        {nil, "10.0.0.2", "ADD[10.0.0.1]"},
		"family disabled":           {with(ipv6Disabled, ipv4Only), v6, "ADD[10.0.0.1]"},
		"the other is excluded":     {with(exclude(v6)), v6, "ADD[10.0.0.1]"},
	} {
		run(t, name, c.setups, func(f *fixture) {
			f.restore("router", v4, c.also)
			f.wantSteps("write adding, DEL, " + c.add + ", write held")
		})
	}
	run(t, "of another owner", nil, func(f *fixture) {
		f.given("health")
		f.restore("router", "10.0.0.9", v6)
		f.wantSteps("write adding, DEL, ADD[10.0.0.9], write held")
		f.wantBoth("health", v4, v6)
	})
	run(t, "the owner holds the first", nil, func(f *fixture) {
		f.given("router")
		f.restore("router", v4, "fd00::9")
		f.wantSteps("CHECK")
		f.wantBoth("router", v4, v6)
	})
	run(t, "being released", nil, func(f *fixture) {
		f.allocate("router")
		f.release(v4)
		f.inject(once("DEL", refused))
		f.wantError(f.tryRelease(v6), attachment.Failed)
		f.restore("router", v4, v6)
		f.restore("router", v6, v4)
		f.wantBoth("router", v4, v6)
	})
}
