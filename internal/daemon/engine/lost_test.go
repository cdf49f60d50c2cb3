package engine

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/daemon/attachment"
	"github.com/delegated-ipam/delegated-ipam/pkg/client"
)

// lostInPart adds a container, of whose addresses the plugin loses 10.0.0.1, and another attachment, with which the plugin
// keeps that under a further ID.
func (f *fixture) lostInPart() (owner string) {
	f.t.Helper()
	f.add("one", "web-one")
	f.setStored("one", "fd00::1")
	f.allocate("router")
	return attachment.ContainerOwner("one", "eth0")
}

// loseAgain makes the plugin lose what keeps 10.0.0.1.
func (f *fixture) loseAgain() {
	f.node.with(func(n *fakeNode) {
		for id, ips := range n.store {
			if slices.Contains(ips, addr("10.0.0.1")) {
				delete(n.store, id)
			}
		}
	})
}

// What keeps an address that a container has lost can be lost, too, and fail, for as long as the container runs.
func TestLostInPartAgain(t *testing.T) {
	bothFamilies := with(unknownPlugin, func(n *fakeNode, _ *Options) { n.ipv6 = true })
	strict := append(slices.Clone(bothFamilies), func(n *fakeNode, _ *Options) { n.strictDel = true })
	wantInvocations := func(f *fixture, owner string, most int) {
		f.t.Helper()
		if got := f.get(owner).Invocations; len(got) > most {
			f.t.Errorf("the record has %d invocations; want at most %d", len(got), most)
		}
	}
	for name, setups := range map[string][]setup{"DEL of nothing succeeds": bothFamilies, "DEL of nothing is refused": strict} {
		run(t, name, setups, func(f *fixture) {
			owner := f.lostInPart()
			for range 3 {
				f.loseAgain()
				f.releaseAll(f.allocate("health"))
			}
			wantInvocations(f, owner, 2)
			f.del("one", "web-one")
			f.releaseAll(f.get("router"))
			f.wantGone()
		})
		run(t, name+", and the ADD is refused", setups, func(f *fixture) {
			owner := f.lostInPart()
			f.loseAgain()
			for range 3 {
				f.inject(nth(2, "ADD", refused))
				_ = f.tryAllocate("health")
				f.inject(nil)
			}
			wantInvocations(f, owner, 2)
			f.sleep(10 * time.Minute)
			f.allocate("health")
			wantInvocations(f, owner, 2)
		})
	}
	run(t, "its ADD acts late, and its outcome cannot be written", bothFamilies, func(f *fixture) {
		f.add("one", "web-one")
		f.setStored("one", "fd00::1")
		add, write := nth(2, "ADD", timeoutLate), nth(2, "write held", writeFailed)
		f.inject(func(step string) fault { return max(add(step), write(step)) })
		_ = f.tryAllocate("router")
		f.inject(nil)
		f.del("one", "web-one")
		f.sleep(time.Hour)
		f.wantGone()
	})
	run(t, "it cannot be released", strict, func(f *fixture) {
		owner := f.lostInPart()
		f.loseAgain()
		f.node.with(func(n *fakeNode) { n.store["pod"], n.rangeSize = append(n.store["pod"], addr("10.0.0.1")), 2 })
		_, _ = f.DelContainer(context.Background(), "net", podContainer("one", "web-one"))
		for range 5 {
			f.sleep(5 * time.Minute)
			if a := f.get(owner); a.State != attachment.Releasing || a.IDInUse() != "one" {
				f.t.Errorf("%s is listed as %s; want the container's ID", a.State, a.IDInUse())
			}
		}
	})
}

// After a rollback the plugin itself adds the container ID again: the daemon leaves that to it, and nothing else.
func TestLostInPartAndAddedAgain(t *testing.T) {
	run(t, "rolled back", with(storeReadable), func(f *fixture) {
		f.add("one", "web-one")
		f.setStored("one", "fd00::1")
		op := f.lock("router")
		world{op}.Settle(attachment.Other{Key: attachment.Key{Pool: client.DefaultPool, Owner: attachment.ContainerOwner("one", "eth0")}}, attachment.Doubted, false)
		op.end()
		f.sleep(time.Second)
		f.releaseAll(f.allocate("router"))
		f.setStored("one", "10.0.0.3", "fd00::3")
		f.restart(storeReadable, func(n *fakeNode, _ *Options) { n.bare = true })
		f.wantRecords(0)
		f.wantStored(1)
	})
}
