package engine

import (
	"net/netip"
	"testing"
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/plugin/profile"
	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/engine/protocol"
	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/journal/record"
)

// exclude excludes addresses and prefixes.
func exclude(list ...string) setup {
	return func(_ *fakeNode, o *Options) {
		o.Exclude = nil
		for _, text := range list {
			p, err := netip.ParsePrefix(text)
			if err != nil {
				p = netip.PrefixFrom(addr(text), addr(text).BitLen())
			}
			o.Exclude = append(o.Exclude, p)
		}
	}
}

// wantAddrs fails unless an owner holds exactly these addresses.
func (f *fixture) wantAddrs(owner string, want ...string) {
	f.t.Helper()
	a := f.get(owner)
	for _, ip := range want {
		if a.State != record.Held || len(a.Addrs()) != len(want) || !a.Holds(addr(ip)) {
			f.t.Errorf("%s is %s with %v; want it held with %v", owner, a.State, a.Addrs(), want)
			return
		}
	}
}

func TestExclude(t *testing.T) {
	const aside = "excluded:10.0.0.1"
	run(t, "set aside", with(exclude("10.0.0.1")), func(f *fixture) {
		f.allocate("router")
		f.wantSteps("write adding, DEL, ADD[], write adding, DEL, write adding, DEL, ADD[10.0.0.1], write held, ADD[], write held")
		f.wantAddrs("router", "10.0.0.2", "fd00::2") // with its IPv6 address
		f.wantAddrs(aside, "10.0.0.1", "fd00::1")
		if a := f.get(aside); !a.Excluded() || len(a.Claims) != 0 || f.get("router").Excluded() {
			f.t.Errorf("%+v is excluded: %t; want it without claims, and router not", a.Record, a.Excluded())
		}
		if got := f.Summaries()["default"].Excluded; got != 1 {
			f.t.Errorf("%d excluded attachments are counted; want one", got)
		}
		f.allocate("health")
		f.wantSteps("write adding, DEL, ADD[], write held") // the plugin returns it to none
	})
	for name, s := range map[string]setup{
		"no request possible":   withProfile(pluginProfile("unknown")),
		"one request possible":  requestsBy(profile.RequestCNIArgs),
		"readable store":        storeReadable,
		"single-use IDs":        withProfile(singleUseIDs()),
		"repeatable ADD":        withProfile(sameAnswer()),
		"one process":           maxProcesses(1),
		"one request at a time": maxQueued(1),
	} {
		run(t, name, with(s, exclude("10.0.0.1", "fd00::2")), func(f *fixture) {
			f.allocate("router")
			a := f.get("router")
			for _, ip := range a.Addrs() {
				if f.opts.Excludes(ip) {
					f.t.Errorf("router holds %s, which is excluded", ip)
				}
			}
			f.sleep(time.Hour)
			f.wantStoreAgrees()
			f.wantStored(len(f.List()))
		})
	}
	run(t, "bounded", with(exclude("10.0.0.0/24")), func(f *fixture) {
		f.wantError(f.tryAllocate("router"), protocol.Failed, "10.0.0.16", "is excluded (--exclude-addresses)", "15 results before it")
		f.sleep(time.Hour)
		if a := f.get("router"); a.State != "" {
			f.t.Errorf("router has %+v; want nothing", a.Record)
		}
		f.wantStored(15)
		f.wantStoreAgrees()
	})
	run(t, "returned although it is held", with(exclude("10.0.0.1")), func(f *fixture) {
		f.allocate("router")
		f.setStored(f.get(aside).IDInUse()) // the plugin loses it
		f.allocate("health")
		f.wantAddrs(aside, "10.0.0.1", "fd00::1")
		f.wantAddrs("health", "10.0.0.3", "fd00::3")
	})
	run(t, "cannot be set aside", with(exclude("10.0.0.1")), func(f *fixture) {
		f.inject(nth(2, "ADD", refused)) // that for the excluded address
		f.allocate("router")
		f.wantAddrs("router", "10.0.0.2", "fd00::2")
		f.sleep(time.Hour)
		f.wantStoreAgrees()
	})
	run(t, "its attachment is busy", with(exclude("10.0.0.1")), func(f *fixture) {
		op := f.lock(aside)
		f.wantError(f.tryAllocate("router"), protocol.Failed, "is excluded")
		op.unlock()
		f.allocate("router")
		f.wantAddrs("router", "10.0.0.2", "fd00::2")
	})
	run(t, "released by its address", with(exclude("10.0.0.1"), releaseDelay(time.Hour)), func(f *fixture) {
		f.allocate("router")
		f.release("10.0.0.1")
		f.wantOwners("router")
		f.wantStored(1)
	})
	run(t, "not excluded any more", with(exclude("10.0.0.1", "fd00::2")), func(f *fixture) {
		f.allocate("router")
		f.restart(exclude("fd00::2"), retireOwners, onlyOwner("router"))
		f.wantOwners("excluded:fd00::2", "router")
		f.restart()
		f.wantOwners("router")
		f.wantStored(1)
	})
	run(t, "cannot be requested by its owner", with(exclude("10.0.0.1")), func(f *fixture) {
		f.allocate("router")
		f.wantError(f.tryAllocate(aside), protocol.Forbidden, aside, "--exclude-addresses")
		f.wantError(f.tryRestore(aside, "10.0.0.9"), protocol.Forbidden)
		f.wantError(f.tryAllocate("excluded:"), protocol.Forbidden)
		f.allocate("excluded/pod") // a pod of a namespace with this name
	})
}

func TestExcludeRestore(t *testing.T) {
	run(t, "refused", with(exclude("10.0.0.1")), func(f *fixture) {
		f.wantError(f.tryRestore("router", "10.0.0.1"), protocol.Failed, "10.0.0.1 is excluded (--exclude-addresses)")
		f.wantSteps("")
		f.allocate("router")
		f.wantError(f.tryRestore("health", "10.0.0.1"), protocol.Failed, "is excluded")
	})
	// The restored address may be in use, so it is not given up for the other family.
	run(t, "the other family is excluded", with(exclude("fd00::1")), func(f *fixture) {
		f.restore("router", "10.0.0.7")
		f.wantAddrs("router", "10.0.0.7", "fd00::1")
		f.wantError(f.tryRestore("router", "fd00::1"), protocol.Failed, "is excluded")
		err := f.try(AllocateRequest{Owner: "router", Family: record.IPv6})
		f.wantError(err, protocol.Failed, "fd00::1", "is excluded", "release the attachment")
		if a := f.allocate("router"); len(a.Claims) != 1 || !a.Claimed(record.IPv4) {
			f.t.Errorf("the claims are %v; want IPv4 only", a.Claims)
		}
		f.release("10.0.0.7")
		f.allocate("router")
		f.wantAddrs("router", "10.0.0.2", "fd00::2")
	})
	run(t, "found in the store", with(storeReadable), func(f *fixture) { // after a lost journal
		f.allocate("router")
		f.loseJournal(exclude("10.0.0.1"))
		f.restore("router", "fd00::1")
		f.allocateFamily("router", record.IPv4)
		f.wantBoth("router", "10.0.0.1", "fd00::1") // the other one may be in use, too
		f.release("fd00::1", "10.0.0.1")
		f.allocate("router")
		f.wantAddrs("router", "10.0.0.2", "fd00::2")
	})
	run(t, "found in the store, and in use", with(storeReadable), func(f *fixture) {
		f.allocate("router")
		f.loseJournal(exclude("10.0.0.1"))
		f.restore("router", "10.0.0.1")
		f.restore("router", "fd00::1")
		f.wantBoth("router", "10.0.0.1", "fd00::1")
		f.loseJournal(exclude("10.0.0.1"))
		f.allocate("router")
		f.wantBoth("router", "10.0.0.1", "fd00::1")
		f.loseJournal(exclude("10.0.0.2"))
		f.wantError(f.tryRestore("router", "10.0.0.2"), protocol.Failed, "is excluded")
	})
}

// What was allocated before it was excluded is served as before.
func TestExcludeLater(t *testing.T) {
	later := exclude("10.0.0.1")
	run(t, "lost", nil, func(f *fixture) {
		f.allocate("router")
		f.clearStore()
		f.restart(later)
		f.wantBoth("router", "10.0.0.1", "fd00::1")
		f.clearStore()
		f.allocate("router")
		f.wantBoth("router", "10.0.0.1", "fd00::1")
	})
	run(t, "the other family was never allocated", nil, func(f *fixture) {
		f.allocateFamily("router", record.IPv6)
		f.restart(later)
		f.wantError(f.tryRestore("router", "10.0.0.1"), protocol.Failed, "is excluded")
		f.wantError(f.try(AllocateRequest{Owner: "router", Family: record.IPv4}), protocol.Failed, "is excluded")
		f.allocateFamily("router", record.IPv6)
	})
	run(t, "in cooldown", with(releaseDelay(time.Hour)), func(f *fixture) {
		f.allocate("router")
		f.release("10.0.0.1", "fd00::1")
		f.restart(later, releaseDelay(time.Hour))
		f.wantError(f.tryRestore("router", "10.0.0.1"), protocol.Failed, "is excluded")
		f.allocate("router")
		f.wantAddrs("router", "10.0.0.2", "fd00::2")
		f.sleep(2 * time.Hour)
		f.wantBoth("router", "10.0.0.2", "fd00::2")
	})
}
