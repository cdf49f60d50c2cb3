package engine

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/daemon/attachment"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/profile"
)

// A plugin that is verified by nothing, and gives the lowest free address, loses a reservation. The next ADD of the
// node gets that address, and proves the loss: its holder gets it again, and the ADD another one.
func TestLostReservation(t *testing.T) {
	owner, container, second := "router", attachment.ContainerOwner("one", "eth0"), attachment.ContainerOwner("two", "eth0")
	add := func(f *fixture, k string) error {
		if id := attachment.RuntimeID(k); id != "" {
			_, err := f.AddContainer(context.Background(), "net", podContainer(id, "web-"+id))
			return err
		}
		return f.tryAllocate(k)
	}
	for name, c := range map[string]struct{ holder, next string }{
		"an owner, then another":     {owner, "health"},
		"an owner, then a container": {owner, container},
		"a container, then an owner": {container, owner},
		"a container, then another":  {container, second},
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
			f.wantCounts(counts{attachment.EventLost: 1, attachment.EventReacquired: 1, attachment.EventDuplicate: 1})
		})
	}
	bothFamilies := with(unknownPlugin, func(n *fakeNode, _ *Options) { n.ipv6 = true })
	// A DEL would cost the container the address that it still has.
	for _, repeated := range []profile.RepeatedAdd{profile.RepeatedAddAnotherAddress, profile.RepeatedAddSameAnswer, profile.RepeatedAddRefused} {
		setups := append(bothFamilies, func(n *fakeNode, _ *Options) { n.profile.RepeatedAdd = repeated })
		for _, next := range []string{owner, second} {
			run(t, fmt.Sprintf("one family of a container, then %s: repeated ADD %s", next, repeated), setups, func(f *fixture) {
				_ = add(f, container)
				f.setStored("one", "fd00::1")
				if err := add(f, next); err != nil {
					f.t.Fatal(err)
				}
				f.wantHeld(next, "10.0.0.2")
				f.wantHeld(container, "10.0.0.1")
				kept := func() string { // the container ID under which the plugin has what was lost
					for id, ips := range f.node.store {
						if slices.Contains(ips, addr("10.0.0.1")) {
							return id
						}
					}
					return ""
				}
				if id := kept(); !f.get(container).Lost || id == "" || id == f.get(next).IDInUse() {
					f.t.Errorf("the store has %v; want what was lost, and the loss", f.node.store)
				}
				f.restart(setups...)
				f.sleep(10 * time.Minute)
				if !f.get(container).Lost {
					f.t.Error("after a restart the loss is not shown")
				}
				f.del("two", "web-two")
				if next == owner {
					f.releaseAll(f.get(owner))
				}
				first := kept()
				if err := add(f, "health"); err != nil {
					f.t.Error(err)
				}
				f.releaseAll(f.get("health"))
				if id := kept(); id == "" || id != first {
					f.t.Errorf("the store has %v; want what was lost, until its container ends", f.node.store)
				}
				f.setStored(first) // it is lost again
				if err := add(f, "health"); err != nil {
					f.t.Error(err)
				}
				f.releaseAll(f.get("health"))
				if id := kept(); id == "" || len(f.node.store) != 2 {
					f.t.Errorf("the store has %v; want one more ID than the container's", f.node.store)
				}
				f.del("one", "web-one")
				f.wantGone()
			})
		}
	}
	run(t, "one family of two containers", bothFamilies, func(f *fixture) {
		_, _ = add(f, container), add(f, second)
		f.setStored("one", "fd00::1")
		f.setStored("two", "fd00::2")
		if err := add(f, owner); err != nil {
			f.t.Fatal(err)
		}
		f.wantHeld(owner, "10.0.0.3")
	})
	run(t, "one family of a container, and a repeated ADD fails", bothFamilies, func(f *fixture) {
		_ = add(f, container)
		f.setStored("one", "fd00::1")
		f.node.with(func(n *fakeNode) { n.rangeSize = 2 })
		f.inject(always(outage, "DEL"))
		_ = add(f, second)
		f.sleep(time.Hour)
		if f.get(second).State != attachment.Releasing {
			f.t.Errorf("%+v; want a record of what the plugin has: %v", f.get(second), f.node.store)
		}
	})
	run(t, "one family of two", bothFamilies, func(f *fixture) {
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
