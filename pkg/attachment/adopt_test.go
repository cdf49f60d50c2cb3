package attachment

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/delegated-ipam/delegated-ipam/pkg/containerid"
)

// loseJournal kills the engine and starts another one without the records.
func (f *fixture) loseJournal() { f.t.Helper(); f.loseJournalWith() }

// loseJournalWith is loseJournal with setups for the other engine.
func (f *fixture) loseJournalWith(setups ...setup) {
	f.t.Helper()
	f.node.kill(f.t, f.Engine)
	f.node.mu.Lock()
	clear(f.node.records)
	f.node.mu.Unlock()
	f.restart(setups...)
}

func TestAdopt(t *testing.T) {
	run(t, "allocate", func(t *testing.T) {
		f := newFixture(t, storeReadable)
		before := f.allocate("router")
		f.loseJournal()
		after := f.allocate("router")
		f.wantSteps("lookup, write held")
		if !sameAddresses(before.Result.Addresses, after.Result.Addresses) {
			t.Errorf("router had %v and gets %v", before.Addrs(), after.Addrs())
		}
	})
	run(t, "restore of each family", func(t *testing.T) {
		f := newFixture(t, storeReadable)
		before := f.allocate("router")
		f.loseJournal()
		for _, ip := range before.Addrs() {
			f.restore("router", ip.String())
		}
		if after := f.get("router"); !sameAddresses(before.Result.Addresses, after.Result.Addresses) || len(after.Claims) != 2 {
			t.Errorf("router had %v and now has %v, claims %v", before.Addrs(), after.Addrs(), after.Claims)
		}
	})
	run(t, "restore of another address", func(t *testing.T) { // keeps the other family
		f := newFixture(t, storeReadable)
		f.allocate("router")
		f.loseJournal()
		f.restore("router", "10.0.0.50")
		f.wantHeld("router", "10.0.0.50")
		f.wantHeld("router", "fd00::1")
	})
	run(t, "released like any other", func(t *testing.T) {
		f := newFixture(t, storeReadable)
		f.allocate("router")
		f.loseJournal()
		f.releaseAll(f.allocate("router"))
		f.wantStored(0)
		f.wantRecords(0)
	})
	run(t, "failed write", func(t *testing.T) {
		f := newFixture(t, storeReadable)
		before := f.allocate("router")
		f.loseJournal()
		f.inject(once("write held", writeFailed))
		f.wantError(f.tryAllocate("router"), Failed)
		if after := f.allocate("router"); !sameAddresses(before.Result.Addresses, after.Result.Addresses) {
			t.Errorf("router had %v and gets %v", before.Addrs(), after.Addrs())
		}
	})
	run(t, "address of another attachment", func(t *testing.T) {
		f := newFixture(t, storeReadable)
		f.allocate("router")
		f.allocate("health")
		f.node.kill(t, f.Engine)
		f.node.mu.Lock()
		for id, r := range f.node.records { // router's record is lost, and the store has health's addresses under its ID
			if r.Owner == "router" {
				delete(f.node.records, id)
				continue
			}
			f.node.store[containerid.For("router", "node1", "net")] = f.node.store[id]
			delete(f.node.store, id)
		}
		f.node.mu.Unlock()
		f.restart()
		f.allocate("router")
		synctest.Wait()
		router, health := f.get("router"), f.get("health")
		for _, ip := range router.Addrs() {
			if health.Holds(ip) {
				t.Errorf("router and health have %s", ip)
			}
		}
		f.wantStoreAgrees()
	})
	run(t, "no lookup", func(t *testing.T) {
		f := newFixture(t)
		f.allocate("router")
		f.loseJournal()
		f.allocate("router")
		f.wantSteps("write adding, DEL, ADD[], write held")
	})
	run(t, "queued DEL", func(t *testing.T) { // its ID is not used again
		f := newFixture(t, withProfile(pluginProfile("azure-ipam")), ipv4Only)
		first := lastID(f.allocate("router").Record)
		f.inject(once("DEL", delQueued))
		f.release("10.0.0.1")
		f.loseJournal()
		f.allocate("router")
		if first == lastID(f.get("router").Record) {
			t.Errorf("the ID %s is used again", first)
		}
		time.Sleep(24 * time.Hour)
		f.wantStoreAgrees()
	})
}
