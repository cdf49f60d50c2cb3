package engine

import (
	"errors"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/delegated-ipam/delegated-ipam/internal/daemon/attachment"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/profile"
)

// outside removes addresses from the ranges of the configuration.
func outside(prefixes ...string) setup {
	return func(n *fakeNode, _ *Options) {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.outside = nil
		for _, p := range prefixes {
			n.outside = append(n.outside, netip.MustParsePrefix(p))
		}
	}
}

// TestOutOfRange: the configuration has got other ranges since an owner's ADD.
func TestOutOfRange(t *testing.T) {
	const v4, v6 = "10.0.0.0/30", "fd00::/126"
	for name, s := range map[string]setup{
		"verified by CHECK":    nil,
		"readable store":       storeReadable,
		"recently verified":    verifyInterval(1e12),
		"one request possible": requestsBy(profile.RequestCNIArgs),
		"no request possible":  withProfile(pluginProfile("unknown")),
		"single-use IDs":       withProfile(singleUseIDs()),
	} {
		run(t, "allocate/"+name, with(s), func(f *fixture) {
			f.allocate("router")
			outside(v4, v6)(f.node, nil)
			f.wantAddrs("router", "10.0.0.1", "fd00::1") // it is in use until its owner asks
			f.allocate("router")
			f.wantAddrs("router", "10.0.0.4", "fd00::4")
			f.wantStoreAgrees()
			f.wantStored(1)
		})
	}
	run(t, "kept when it is listed", nil, func(f *fixture) {
		f.allocate("router")
		outside(v4)(f.node, nil)
		f.allocate("health")
		var got []call.Range
		for _, a := range f.List() {
			got = append(got, a.Range)
		}
		if want := []call.Range{"", call.RangeOutside}; !slices.Equal(got, want) {
			f.t.Errorf("health and router are %q; want %q", got, want)
		}
	})
	for name, s := range map[string]setup{"restore": nil, "restore, recently verified": verifyInterval(1e12)} {
		run(t, name, with(s), func(f *fixture) {
			f.given("router")
			outside(v4)(f.node, nil)
			f.wantError(f.tryRestore("router", "10.0.0.1"), attachment.Failed, "10.0.0.1", "outside the ranges")
			f.restore("router", "fd00::1") // of the other family
			f.wantAddrs("router", "10.0.0.1", "fd00::1")
			f.wantStoreAgrees()
			f.wantError(f.tryRestore("health", "10.0.0.2"), attachment.Failed, "10.0.0.2", "outside the ranges")
			f.wantOwners("router")
		})
	}
	run(t, "one family", nil, func(f *fixture) {
		f.allocate("router")
		outside(v4)(f.node, nil)
		if a := f.allocateFamily("router", attachment.IPv6); !a.Holds(addr("10.0.0.1")) {
			f.t.Errorf("IPv4 of %v has changed for a request of IPv6", a.Addrs())
		}
		f.allocateFamily("router", attachment.IPv4)
		f.wantAddrs("router", "10.0.0.4", "fd00::1") // IPv6 is requested again
	})
	run(t, "lost", nil, func(f *fixture) {
		f.allocate("router")
		f.clearStore()
		f.restart(outside(v4, v6))
		f.wantSteps("CHECK") // no ADD for an address that another node may have
		if a := f.get("router"); !a.Lost {
			f.t.Errorf("%+v is not lost", a)
		}
		f.allocate("router")
		f.wantAddrs("router", "10.0.0.4", "fd00::4")
	})
	run(t, "lost journal", with(storeReadable), func(f *fixture) {
		f.allocate("router")
		f.loseJournal(storeReadable, outside(v4, v6))
		f.wantError(f.tryRestore("router", "10.0.0.1"), attachment.Failed, "outside of its configuration")
		f.allocate("router")
		f.wantAddrs("router", "10.0.0.4", "fd00::4")
		f.wantStoreAgrees()
		f.wantStored(1)
	})
	for name, s := range map[string]setup{"": nil, ", recently verified": verifyInterval(1e12), ", readable store": storeReadable} {
		run(t, "no configuration at the start"+name, with(s), func(f *fixture) {
			f.allocate("router")
			f.restart(s, outside(v4, v6), func(n *fakeNode, _ *Options) { n.networkErr = errors.New("no file") })
			f.steps()
			f.wantError(f.tryAllocate("router"), attachment.Failed, "10.0.0.1", "cannot be compared", "no file")
			f.wantError(f.tryRestore("router", "10.0.0.1"), attachment.Failed, "10.0.0.1", "cannot be compared", "no file")
			f.wantSteps("")
			f.wantHeld("router", "10.0.0.1")
			if got := f.get("router").LastError; got != "" { // nothing is wrong with it
				f.t.Errorf("last error %q", got)
			}
			f.node.networkErr = nil
			f.allocate("router")
			f.wantAddrs("router", "10.0.0.4", "fd00::4")
			f.wantStoreAgrees()
		})
	}
	run(t, "no configuration at the start, unknown ranges", with(checkedPlugin), func(f *fixture) {
		f.allocate("router")
		f.restart(checkedPlugin, func(n *fakeNode, _ *Options) { n.networkErr = errors.New("no file") })
		f.allocate("router")
		f.wantAddrs("router", "10.0.0.1")
	})
	run(t, "no configuration", nil, func(f *fixture) {
		f.allocate("router")
		synctest.Wait()
		f.node.networkErr = errNoLookup
		if got := f.List()[0].Range; got != call.RangeUnconfigured {
			f.t.Errorf("got %q; want %q", got, call.RangeUnconfigured)
		}
		f.allocate("router") // held addresses are served
		f.wantAddrs("router", "10.0.0.1", "fd00::1")
	})
}
