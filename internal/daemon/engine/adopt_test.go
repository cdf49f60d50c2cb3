package engine

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/daemon/attachment"
)

// loseJournal kills the engine and starts another one, with these setups, without the records.
func (f *fixture) loseJournal(setups ...setup) {
	f.t.Helper()
	f.node.kill(f.t, f.Engine)
	f.node.with(func(n *fakeNode) { clear(n.records) })
	f.restart(setups...)
}

func TestAdopt(t *testing.T) {
	run(t, "allocate, also after a failed write", with(storeReadable), func(f *fixture) {
		f.allocate("router")
		f.loseJournal()
		f.inject(once("write held", writeFailed))
		f.wantError(f.tryAllocate("router"), attachment.Failed)
		f.steps()
		f.allocate("router")
		f.wantSteps("lookup, write held")
		f.wantAddrs("router", "10.0.0.1", "fd00::1")
	})
	run(t, "restore of each family", with(storeReadable), func(f *fixture) {
		f.allocate("router")
		f.loseJournal()
		f.restore("router", "10.0.0.1")
		f.restore("router", "fd00::1")
		f.wantBoth("router", "10.0.0.1", "fd00::1")
	})
	run(t, "restore of an address of another owner", with(storeReadable), func(f *fixture) { // as with a record
		f.allocate("router")
		f.allocate("health")
		f.loseJournal()
		f.wantError(f.tryRestore("router", "10.0.0.2", "fd00::2"), attachment.Failed, "holds [10.0.0.1 fd00::1], not 10.0.0.2")
		f.wantSteps("lookup, write held")
		f.allocate("router")
		f.allocate("health")
		f.wantAddrs("router", "10.0.0.1", "fd00::1")
		f.wantAddrs("health", "10.0.0.2", "fd00::2")
	})
	run(t, "restore without a configuration of the range", with(storeReadable), func(f *fixture) {
		f.allocate("router")
		f.node.lookupErr = errors.New("in none of the ranges")
		f.loseJournal()
		f.wantError(f.tryRestore("router", "10.0.0.50"), attachment.Failed, "10.0.0.1", "in none of the ranges")
		f.wantSteps("lookup")
		f.wantStored(1)
	})
	for _, family := range []attachment.Family{attachment.IPv4, attachment.IPv6} {
		run(t, "every family is claimed by a request for "+string(family), with(storeReadable), func(f *fixture) {
			f.allocate("router")
			f.loseJournal()
			a := f.must(AllocateRequest{Owner: "router", Family: family, Expire: true})
			held, _ := a.Address(family)
			f.release(held.Addr().String())
			f.sleep(time.Hour)
			f.wantStored(1) // the other address was allocated, too
			if a := f.get("router"); len(a.Claims) != 1 || a.Claimed(family) {
				f.t.Errorf("router has the claims %v; want the other family", a.Claims)
			}
		})
	}
	run(t, "a family that is disabled is not claimed", with(storeReadable, ipv6Disabled), func(f *fixture) {
		f.allocate("router")
		f.loseJournal(ipv6Disabled)
		f.allocate("router")
		f.release("10.0.0.1")
		f.wantGone()
	})
	run(t, "only a family that is disabled", with(storeReadable), func(f *fixture) { // it can be released
		f.setStored(f.allocate("router").ContainerID, "fd00::1")
		f.loseJournal(ipv6Disabled)
		f.wantError(f.tryAllocate("router"), attachment.Failed, "holds [fd00::1]", "no address of [ipv4]", "release")
		f.release("fd00::1")
		f.wantNone()
	})
	run(t, "one of two addresses is left", with(storeReadable), func(f *fixture) {
		id := f.allocate("router").ContainerID
		f.setStored(id, "10.0.0.1")
		f.loseJournal()
		err := f.try(AllocateRequest{Owner: "router", Family: attachment.IPv6})
		f.wantError(err, attachment.Failed, "holds [10.0.0.1]", "no address of [ipv6]", "release")
		f.wantError(f.tryRestore("router", "fd00::1"), attachment.Failed, "holds [10.0.0.1], not fd00::1")
		f.wantSteps("lookup, write held")
		f.releaseAll(f.allocateFamily("router", attachment.IPv4))
		f.allocateFamily("router", attachment.IPv6)
	})
	run(t, "address of another attachment", with(storeReadable), func(f *fixture) {
		f.allocate("router")
		healthID := f.allocate("health").ContainerID
		f.node.kill(f.t, f.Engine)
		delete(f.node.records, routerID)
		f.setStored(routerID, "10.0.0.2", "fd00::2") // health's addresses under router's ID
		f.setStored(healthID)
		f.restart()
		f.allocate("router")
		synctest.Wait()
		router, health := f.get("router"), f.get("health")
		for _, ip := range router.Addrs() {
			if health.Holds(ip) {
				f.t.Errorf("router and health have %s", ip)
			}
		}
		f.wantStoreAgrees()
	})
}
