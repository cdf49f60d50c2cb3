package engine

import (
	"testing"
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/engine/protocol"
	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/journal/record"
	"github.com/delegated-ipam/delegated-ipam/pkg/client"
)

// addCopy adds a younger copy of an owner's record to the disk, with changes.
func (f *fixture) addCopy(owner, containerID string, change func(*record.Record)) {
	r := f.get(owner).Clone()
	r.ContainerID, r.Created = containerID, r.Created.Add(time.Second)
	r.Invocations = []call.Invocation{r.Invocations[0]}
	r.Invocations[0].ContainerID = containerID
	change(&r)
	f.node.mu.Lock()
	defer f.node.mu.Unlock()
	f.node.records[containerID] = r
}

func TestLoad(t *testing.T) {
	for name, c := range map[string]struct {
		plugin  string
		younger string // container ID; records are loaded in its order
		stored  bool   // the plugin holds the address for both
	}{
		"host-local":                 {"host-local", "copy-1", false},
		"host-local, CHECK succeeds": {"host-local", "copy-1", true},
		"younger is loaded first":    {"host-local", "a-copy-1", false},
		"calico, not verified":       {"calico-ipam", "copy-1", false},
		"dhcp, verified by ADD":      {"dhcp", "copy-1", true},
		"azure, not verified":        {"azure-ipam", "copy-1", true},
	} {
		run(t, "two records with one address: "+name, func(t *testing.T) {
			f := newFixture(t, withProfile(pluginProfile(c.plugin)))
			f.allocate("router")
			f.addCopy("router", c.younger, func(r *record.Record) { r.Owner = "copy" })
			if c.stored {
				f.setStored(c.younger, "10.0.0.1")
			}
			f.restart()
			f.wantOwners("copy", "router")
			if f.Counters().Duplicates == 0 {
				t.Error("no duplicate counted")
			}
			if younger := f.allocate("copy"); younger.Holds(addr("10.0.0.1")) {
				t.Errorf("the younger gets %v, which router has", younger.Addrs())
			}
			f.wantHeld("router", "10.0.0.1")
		})
	}
	run(t, "two records with one address: one is releasing", func(t *testing.T) {
		f := newFixture(t, ipv4Only)
		f.allocate("router")
		f.addCopy("router", "gone-1", func(r *record.Record) { r.Owner, r.State, r.Claims = "gone", record.Releasing, nil })
		f.restart()
		f.wantCounters(Counters{})
		f.wantOwners("router")
		f.wantHeld("router", "10.0.0.1")
	})
	run(t, "two records of one owner", func(t *testing.T) {
		f := newFixture(t)
		f.allocate("router")
		f.addCopy("router", "second-1", func(*record.Record) {})
		f.restart()
		f.wantOwners("router")
		if id := f.get("router").ContainerID; id == "second-1" {
			t.Error("the second record is used")
		}
		f.wantRecords(2)
	})
	run(t, "node and network renamed", func(t *testing.T) {
		f := newFixture(t)
		before := f.allocate("router")
		f.node.networks[client.DefaultPool] = "renamed"
		f.restart(func(_ *fakeNode, o *Options) { o.Node = "other" })
		after := f.allocate("router")
		if before.ContainerID != after.ContainerID || !sameAddresses(before.Result.Addresses, after.Result.Addresses) {
			t.Errorf("before %+v, after %+v", before.Record, after.Record)
		}
	})
}

// Deadlines that a clock ahead of time has written are bounded by what they were made of.
func TestClockAhead(t *testing.T) {
	clockWasAhead := func(f *fixture, setups ...setup) {
		f.t.Helper()
		f.node.kill(f.t, f.Engine)
		f.node.shiftTimes(365 * 24 * time.Hour)
		f.restart(setups...)
	}
	for name, setup := range map[string]setup{
		"release delay":               releaseDelay(time.Minute),
		"release delay, disabled now": nil,
	} {
		run(t, name, func(t *testing.T) {
			f := newFixture(t, releaseDelay(time.Minute))
			f.releaseAll(f.allocate("router"))
			clockWasAhead(f, setup)
			f.wantStored(1)
			f.sleep(2 * time.Minute)
			f.wantStored(0)
		})
	}
	run(t, "expiration", func(t *testing.T) {
		f := newFixture(t)
		f.allocateExpiring("router")
		clockWasAhead(f)
		f.sleep(time.Hour)
		f.wantStored(0)
	})
	run(t, "ADD and DEL that may act late", func(t *testing.T) {
		f := newFixture(t, unknownPlugin)
		f.inject(always(timeoutBefore, "ADD", "DEL"))
		f.wantError(f.tryAllocate("router"), protocol.Failed)
		clockWasAhead(f)
		f.sleep(time.Hour)
		f.wantRecords(0)
	})
}
