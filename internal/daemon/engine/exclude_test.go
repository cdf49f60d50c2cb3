package engine

import (
	"context"
	"net/netip"
	"testing"
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/daemon/attachment"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/profile"
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
		if a.State != attachment.Held || len(a.Addrs()) != len(want) || !a.Holds(addr(ip)) {
			f.t.Errorf("%s is %s with %v; want it held with %v", owner, a.State, a.Addrs(), want)
			return
		}
	}
}

// pluginContinues makes each ADD continue after the last address, as host-local does.
func pluginContinues(n *fakeNode, _ *Options) { n.continues = true }

// What the plugin returns is released, and the request fails. A plugin that continues returns another one next time.
func TestExclude(t *testing.T) {
	for name, s := range map[string]setup{
		"no request possible":   withProfile(pluginProfile("unknown")),
		"one request possible":  requestsBy(profile.RequestCNIArgs),
		"readable store":        storeReadable,
		"single-use IDs":        withProfile(singleUseIDs()),
		"repeatable ADD":        withProfile(sameAnswer()),
		"one process":           maxProcesses(1),
		"one request at a time": maxQueued(1),
	} {
		run(t, name, with(s, exclude("10.0.0.1", "fd00::4"), pluginContinues), func(f *fixture) {
			for range 2 {
				f.wantError(f.tryAllocate("router"), attachment.Failed, "is excluded (--exclude-addresses)", "exclude it in the plugin's configuration, too")
				f.sleep(time.Hour)
				f.wantStored(0)
				f.wantOwners()
			}
			f.allocate("router")
			f.wantAddrs("router", "10.0.0.5", "fd00::6")
			f.wantStoreAgrees()
		})
	}
	run(t, "of a container", with(exclude("fd00::2", "10.0.0.3"), pluginContinues), func(f *fixture) {
		_, err := f.AddContainer(context.Background(), "net", podContainer("one", "web"))
		f.wantError(err, attachment.Failed, "is excluded")
		f.wantStored(0)
		f.add("two", "web")
		f.wantStoreAgrees()
	})
}

func TestExcludeRestore(t *testing.T) {
	run(t, "refused", with(exclude("10.0.0.9")), func(f *fixture) {
		f.wantError(f.tryRestore("router", "10.0.0.9"), attachment.Failed, "10.0.0.9 is excluded (--exclude-addresses)")
		f.wantSteps("")
		f.allocate("router")
		f.wantError(f.tryRestore("router", "10.0.0.9"), attachment.Failed, "is excluded")
	})
	// The restored address may be in use, so it is not given up for the other family.
	run(t, "the other family is excluded", with(exclude("fd00::1")), func(f *fixture) {
		f.restore("router", "10.0.0.7")
		f.wantAddrs("router", "10.0.0.7", "fd00::1")
		f.wantError(f.tryRestore("router", "fd00::1"), attachment.Failed, "is excluded")
		err := f.try(AllocateRequest{Owner: "router", Family: attachment.IPv6})
		f.wantError(err, attachment.Failed, "fd00::1", "is excluded", "release the attachment")
		if a := f.allocate("router"); len(a.Claims) != 1 || !a.Claimed(attachment.IPv4) {
			f.t.Errorf("the claims are %v; want IPv4 only", a.Claims)
		}
		f.release("10.0.0.7")
		f.wantError(f.tryAllocate("router"), attachment.Failed, "fd00::1", "is excluded")
	})
	run(t, "found in the store", with(storeReadable), func(f *fixture) { // after a lost journal
		f.allocate("router")
		f.loseJournal(exclude("10.0.0.1"))
		f.restore("router", "fd00::1")
		f.allocateFamily("router", attachment.IPv4)
		f.wantBoth("router", "10.0.0.1", "fd00::1") // the other one may be in use, too
		f.release("fd00::1", "10.0.0.1")
		f.wantError(f.tryAllocate("router"), attachment.Failed, "10.0.0.1", "is excluded")
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
		f.wantError(f.tryRestore("router", "10.0.0.2"), attachment.Failed, "is excluded")
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
		f.allocateFamily("router", attachment.IPv6)
		f.restart(later)
		f.wantError(f.tryRestore("router", "10.0.0.1"), attachment.Failed, "is excluded")
		f.wantError(f.try(AllocateRequest{Owner: "router", Family: attachment.IPv4}), attachment.Failed, "is excluded")
		f.allocateFamily("router", attachment.IPv6)
	})
	run(t, "in cooldown", with(releaseDelay(time.Hour), pluginContinues), func(f *fixture) {
		f.allocate("router")
		f.release("10.0.0.1", "fd00::2")
		f.restart(later, releaseDelay(time.Hour))
		f.wantError(f.tryRestore("router", "10.0.0.1"), attachment.Failed, "is excluded")
		f.allocate("router")
		f.wantAddrs("router", "10.0.0.3", "fd00::4")
		f.sleep(2 * time.Hour)
		f.wantBoth("router", "10.0.0.3", "fd00::4")
	})
}
