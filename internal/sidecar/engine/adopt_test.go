package engine

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/containerid"
	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/engine/protocol"
	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/journal/record"
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
	for name, ip := range map[string]string{
		"restore of an address of another owner": "10.0.0.2", "restore outside of the range": "192.168.0.1", "restore of a free address": "10.0.0.50",
	} {
		run(t, name, func(t *testing.T) { // changes nothing, as with a record
			f := newFixture(t, storeReadable)
			router, health := f.allocate("router"), f.allocate("health")
			f.loseJournal()
			f.wantError(f.tryRestore("router", ip), protocol.Failed, "holds [10.0.0.1 fd00::1], not "+ip)
			f.wantSteps("lookup, write held")
			for _, before := range []Attachment{router, health} {
				if after := f.allocate(before.Owner); !sameAddresses(before.Result.Addresses, after.Result.Addresses) {
					t.Errorf("%s had %v and gets %v", before.Owner, before.Addrs(), after.Addrs())
				}
			}
		})
	}
	run(t, "restore without a configuration of the range", func(t *testing.T) {
		f := newFixture(t, storeReadable)
		f.allocate("router")
		f.node.lookupErr = errors.New("in none of the ranges")
		f.loseJournal()
		f.wantError(f.tryRestore("router", "10.0.0.50"), protocol.Failed, "10.0.0.1", "in none of the ranges")
		f.wantSteps("lookup")
		f.wantStored(1)
	})
	for _, family := range []record.Family{record.IPv4, record.IPv6} {
		run(t, "every family is claimed by a request for "+string(family), func(t *testing.T) {
			f := newFixture(t, storeReadable)
			f.allocate("router")
			f.loseJournal()
			a := f.allocateWith(AllocateRequest{Owner: "router", Family: family, Expire: true})
			held, _ := a.Address(family)
			f.release(held.Addr().String())
			f.sleep(time.Hour)
			f.wantStored(1) // the other address was allocated, too
			if a := f.get("router"); len(a.Claims) != 1 || a.Claimed(family) {
				t.Errorf("router has the claims %v; want the other family", a.Claims)
			}
		})
	}
	run(t, "a family that is disabled is not claimed", func(t *testing.T) {
		f := newFixture(t, storeReadable, ipv6Disabled)
		f.allocate("router")
		f.loseJournalWith(ipv6Disabled)
		f.allocate("router")
		f.release("10.0.0.1")
		f.wantNone()
		f.wantRecords(0)
	})
	run(t, "only a family that is disabled", func(t *testing.T) { // it can be released
		f := newFixture(t, storeReadable)
		f.setStored(f.allocate("router").ContainerID, "fd00::1")
		f.loseJournalWith(ipv6Disabled)
		f.wantError(f.tryAllocate("router"), protocol.Failed, "holds [fd00::1]", "no address of [ipv4]", "release")
		f.release("fd00::1")
		f.wantNone()
	})
	run(t, "one of two addresses is left", func(t *testing.T) {
		f := newFixture(t, storeReadable)
		id := f.allocate("router").ContainerID
		f.setStored(id, "10.0.0.1")
		f.loseJournal()
		err := f.tryAllocateWith(AllocateRequest{Owner: "router", Family: record.IPv6})
		f.wantError(err, protocol.Failed, "holds [10.0.0.1]", "no address of [ipv6]", "release")
		f.wantError(f.tryRestore("router", "fd00::1"), protocol.Failed, "holds [10.0.0.1], not fd00::1")
		f.wantSteps("lookup, write held")
		f.releaseAll(f.allocateFamily("router", record.IPv4))
		f.allocateFamily("router", record.IPv6)
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
		f.wantError(f.tryAllocate("router"), protocol.Failed)
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
