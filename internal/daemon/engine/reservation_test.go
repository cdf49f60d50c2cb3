package engine

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/daemon/attachment"
)

// A plugin that is verified by nothing, and gives the lowest free address, loses a reservation. The next ADD of the
// node gets that address, and proves the loss: its holder gets it again, and the ADD another one.
func TestLostReservation(t *testing.T) {
	owner, container := "router", attachment.ContainerOwner("one", "eth0")
	add := func(f *fixture, k string) error {
		if k == container {
			_, err := f.AddContainer(context.Background(), "net", podContainer("one", "web-0"))
			return err
		}
		return f.tryAllocate(k)
	}
	for name, c := range map[string]struct{ holder, next string }{
		"an owner, then another":     {owner, "health"},
		"an owner, then a container": {owner, container},
		"a container, then an owner": {container, owner},
	} {
		run(t, name, with(unknownPlugin), func(f *fixture) {
			if err := add(f, c.holder); err != nil {
				f.t.Fatal(err)
			}
			f.clearStore()
			if err := add(f, c.next); err != nil {
				f.t.Fatal(err)
			}
			synctest.Wait()
			f.wantHeld(c.holder, "10.0.0.1")
			f.wantHeld(c.next, "10.0.0.2")
			f.wantStoreAgrees()
			if got := f.Counters(); got.Lost != 1 || got.Reacquired != 1 || got.Duplicates != 1 {
				f.t.Errorf("counters %+v; want the loss", got)
			}
		})
	}
	run(t, "one family of two", with(unknownPlugin, func(n *fakeNode, _ *Options) { n.ipv6 = true }), func(f *fixture) {
		f.setStored(f.allocate("router").IDInUse(), "10.0.0.1")
		f.allocate("health")
		synctest.Wait()
		f.wantHeld("router", "fd00::1")
		f.wantHeld("health", "fd00::2")
		f.wantStoreAgrees()
	})
	run(t, "another node takes it", with(unknownPlugin), func(f *fixture) {
		f.allocate("router")
		f.clearStore()
		f.inject(nth(3, "ADD", refused)) // the router's own; the first one was before
		_ = f.tryAllocate("health")
		f.sleep(time.Second)
		if a := f.get("router"); !a.Holds(addr("10.0.0.1")) {
			f.t.Errorf("router has %v", a.Addrs())
		}
	})
}
