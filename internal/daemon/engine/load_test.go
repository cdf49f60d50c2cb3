package engine

import (
	"testing"
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/daemon/attachment"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
	"github.com/delegated-ipam/delegated-ipam/pkg/client"
)

// addCopy adds a younger copy of an owner's record to the disk, with changes.
func (f *fixture) addCopy(owner, containerID string, change func(*attachment.Record)) {
	r := f.get(owner).Clone()
	r.ContainerID, r.Created = containerID, r.Created.Add(time.Second)
	r.Invocations = []call.Invocation{r.Invocations[0]}
	r.Invocations[0].ContainerID = containerID
	change(&r)
	f.node.with(func(n *fakeNode) { n.records[containerID] = r })
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
		run(t, "two records with one address: "+name, with(withProfile(pluginProfile(c.plugin))), func(f *fixture) {
			f.allocate("router")
			f.sleep(time.Second) // a record is not younger than its start
			f.addCopy("router", c.younger, func(r *attachment.Record) { r.Owner, r.Created = "copy", time.Now() })
			if c.stored {
				f.setStored(c.younger, "10.0.0.1")
			}
			f.restart()
			f.wantOwners("copy", "router")
			if f.Count(attachment.EventDuplicate) == 0 {
				f.t.Error("no duplicate counted")
			}
			if younger := f.allocate("copy"); younger.Holds(addr("10.0.0.1")) {
				f.t.Errorf("the younger gets %v, which router has", younger.Addrs())
			}
			f.wantHeld("router", "10.0.0.1")
		})
	}
	run(t, "two records with one address: one is releasing", with(ipv4Only), func(f *fixture) {
		f.allocate("router")
		f.addCopy("router", "gone-1", func(r *attachment.Record) { r.Owner, r.State, r.Claims = "gone", attachment.Releasing, nil })
		f.restart()
		f.wantCounts(counts{})
		f.wantOwners("router")
		f.wantHeld("router", "10.0.0.1")
	})
	run(t, "two records of one owner", nil, func(f *fixture) {
		f.allocate("router")
		f.addCopy("router", "second-1", func(*attachment.Record) {})
		f.restart()
		f.wantOwners("router")
		if id := f.get("router").ContainerID; id == "second-1" {
			f.t.Error("the second record is used")
		}
		f.wantRecords(2)
	})
	run(t, "node and network renamed", nil, func(f *fixture) {
		before := f.allocate("router")
		f.node.networks[client.DefaultPool] = "renamed"
		f.restart(func(_ *fakeNode, o *Options) { o.Node = "other" })
		after := f.allocate("router")
		f.wantAddrs("router", "10.0.0.1", "fd00::1")
		if before.ContainerID != after.ContainerID {
			f.t.Errorf("the container ID was %s and is %s", before.ContainerID, after.ContainerID)
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
		run(t, name, with(releaseDelay(time.Minute)), func(f *fixture) {
			f.releaseAll(f.allocate("router"))
			clockWasAhead(f, setup)
			f.wantStored(1)
			f.sleep(2 * time.Minute)
			f.wantStored(0)
		})
	}
	run(t, "a container that ended", with(ipv4Only), func(f *fixture) {
		f.add("one", "web")
		clockWasAhead(f)
		f.sleep(time.Second)
		if err := f.GC(f.t.Context(), "net", nil); err != nil {
			f.t.Fatal(err)
		}
		f.wantStored(0)
	})
	run(t, "expiration", nil, func(f *fixture) {
		f.allocateExpiring("router")
		clockWasAhead(f)
		f.sleep(time.Hour)
		f.wantStored(0)
	})
	run(t, "ADD and DEL that may act late", with(unknownPlugin), func(f *fixture) {
		f.inject(always(timeoutBefore, "ADD", "DEL"))
		f.wantError(f.tryAllocate("router"), attachment.Failed)
		clockWasAhead(f)
		f.sleep(time.Hour)
		f.wantRecords(0)
	})
}
