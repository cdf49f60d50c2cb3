package engine

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/daemon/attachment"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/profile"
	"github.com/delegated-ipam/delegated-ipam/pkg/client"
)

// verifiedByAdd makes the plugin one that is verified by ADD and takes no requests for addresses.
func verifiedByAdd(n *fakeNode, _ *Options) {
	n.profile.VerifyBy, n.profile.RepeatedAdd, n.profile.Requests = profile.VerifyAdd, profile.RepeatedAddSameAnswer, nil
}

func TestVerify(t *testing.T) {
	run(t, "failed CHECK is not evidence of loss", nil, func(f *fixture) {
		f.allocate("router")
		for _, injected := range []fault{notStarted, timeoutBefore, refused} {
			f.inject(always(injected, "CHECK"))
			f.wantError(f.tryAllocate("router"), attachment.Failed, "could not verify", "router")
		}
		f.wantHeld("router", "10.0.0.1")
	})
	run(t, "last error is kept until the plugin works", with(ipv4Only), func(f *fixture) {
		f.allocate("router")
		f.inject(always(refused, "CHECK"))
		f.wantError(f.tryAllocate("router"), attachment.Failed)
		f.sleep(time.Minute)
		if f.get("router").LastError == "" {
			f.t.Error("no last error although CHECK still fails")
		}
		f.inject(nil)
		f.sleep(time.Hour)
		if last := f.get("router").LastError; last != "" {
			f.t.Errorf("the last error is still %q", last)
		}
	})
	noCheck := func(n *fakeNode, _ *Options) { n.cniVersion = "0.3.1" }
	notVerified := changedProfile(func(p *profile.Profile) { p.VerifyBy = profile.VerifyNothing })
	clearStore := func(f *fixture) { f.clearStore() }
	const again = "write adding, DEL, ADD[10.0.0.1 fd00::1], write held"
	for name, c := range map[string]struct {
		setup setup
		since func(*fixture) // what happened since an allocation
		steps string         // of the next one
	}{
		"CHECK":                     {nil, nil, "CHECK"},
		"CHECK finds a loss":        {nil, clearStore, "CHECK, write held, DEL, write adding, ADD[10.0.0.1 fd00::1], write held"},
		"CNI version without CHECK": {noCheck, nil, ""},
		"ADD":                       {verifiedByAdd, nil, "ADD[]"},
		"dhcp: ADD, not CHECK":      {withProfile(pluginProfile("dhcp")), nil, "ADD[]"},   // its CHECK would take a lease
		"calico: nothing":           {withProfile(pluginProfile("calico-ipam")), nil, ""}, // its CHECK always succeeds
		"nothing to verify by":      {notVerified, clearStore, ""},
		"lookup":                    {storeReadable, nil, ""},
		"lookup finds a loss":       {storeReadable, clearStore, again},
		"lookup fails":              {storeReadable, func(f *fixture) { f.node.storeHidden = true }, "CHECK"},
		"no lookup after the ADD":   {nil, func(f *fixture) { f.node.storeHidden = false }, "CHECK"},
		"lookup finds a loss, and the DEL fails": { // the store itself was read
			storeReadable, func(f *fixture) { f.clearStore(); f.inject(once("DEL", outage)) }, again,
		},
	} {
		run(t, name, with(c.setup), func(f *fixture) {
			f.given("router")
			if c.since != nil {
				c.since(f)
			}
			f.allocate("router")
			f.wantSteps(c.steps)
			f.wantAddrs("router", "10.0.0.1", "fd00::1")
		})
	}
}

func TestVerifyByAdd(t *testing.T) {
	run(t, "other result is released", with(verifiedByAdd), func(f *fixture) {
		f.allocate("router")
		f.clearStore()
		f.setStored("a-pod", "10.0.0.1", "fd00::1")
		f.steps()
		f.allocate("router")
		f.wantSteps("ADD[], write adding, write adding, DEL, ADD[], write held")
		f.wantHeld("router", "10.0.0.2")
	})
	for name, crash := range map[string]bool{"engine killed": true, "write fails": false} {
		run(t, "timed-out ADD gets a DEL: "+name, with(withProfile(pluginProfile("dhcp")), ipv4Only), func(f *fixture) {
			id := f.allocate("router").ContainerID
			f.clearStore()
			firstADD := once("ADD", timeoutBefore)
			f.inject(func(step string) fault {
				if step == "write held" {
					return writeFailed
				}
				return firstADD(step)
			})
			err := f.tryAllocate("router")
			f.wantError(err, attachment.Failed, "could not verify [10.0.0.1]")
			if strings.Contains(err.Error(), "nothing was changed") {
				f.t.Errorf("error %q although the ADD may have allocated", err)
			}
			f.inject(nil)
			if crash {
				f.node.kill(f.t, f.Engine)
				f.start()
			}
			f.release("10.0.0.1")
			time.Sleep(100 * time.Second)
			f.setStored(id, "10.0.0.77") // the ADD acts late
			f.sleep(time.Hour)
			f.wantNone()
		})
	}
}

func TestLookup(t *testing.T) {
	run(t, "needs no plugin process", with(storeReadable), func(f *fixture) {
		f.allocate("router")
		all := int64(f.opts.MaxProcesses)
		if !f.pools[client.DefaultPool].processes[ofRuntime][0].TryAcquire(all) {
			f.t.Fatal("a process is in use")
		}
		f.allocate("router")
		f.pools[client.DefaultPool].processes[ofRuntime][0].Release(all)
	})
}

func TestReboot(t *testing.T) {
	provesAddress := changedProfile(func(p *profile.Profile) { p.CheckProves = profile.ProvesAddress })
	for name, c := range map[string]struct {
		setup, restart setup
		steps          string
	}{
		"held: verified once":             {nil, nil, "CHECK"}, // without a reboot
		"lease in the store is kept":      {storeReadable, rebooted, "write held"},
		"store off the node":              {withProfile(pluginProfile("calico-ipam")), rebooted, "write held"},
		"CHECK that compares the address": {provesAddress, rebooted, "CHECK, write held"},
	} {
		run(t, name, with(c.setup), func(f *fixture) {
			f.allocate("router")
			f.restart(c.restart)
			f.wantSteps(c.steps)
			f.wantAddrs("router", "10.0.0.1", "fd00::1")
			f.wantStoreAgrees()
		})
	}
	atServer := withProfile(pluginProfile("calico-ipam"), func(p *profile.Profile) { p.AddOutlivesSeconds = 240 })
	run(t, "does not end an ADD at a server", with(ipv4Only, atServer), func(f *fixture) {
		f.inject(once("ADD", timeoutLate))
		f.wantError(f.tryAllocate("router"), attachment.Failed)
		f.restart(rebooted)
		f.sleep(time.Hour)
		f.wantNone()
	})
	run(t, "one family is not available any more", with(storeReadable), func(f *fixture) {
		id := f.allocate("router").ContainerID
		f.clearStore()
		f.setStored("a-pod", "10.0.0.1")
		f.restart(rebooted)
		f.sleep(time.Hour)
		if got := f.node.store[id]; !slices.Contains(got, addr("fd00::1")) {
			f.t.Errorf("after an hour the plugin holds %v for router; want fd00::1, which its owner uses", got)
		}
		f.wantHeld("router", "fd00::1")
		f.wantStoreAgrees()
	})
	run(t, "CHECK of presence is not enough", nil, func(f *fixture) {
		f.allocate("health")
		id := f.allocate("router").ContainerID
		f.setStored(id, "10.0.0.9", "fd00::9") // an older state: the last writes are lost
		f.restart(rebooted)
		f.wantHeld("router", "10.0.0.2")
		f.wantHeld("health", "10.0.0.1")
		if got := fmt.Sprint(f.node.store[id]); got != "[10.0.0.2 fd00::2]" {
			f.t.Errorf("the plugin holds %s for router", got)
		}
	})
	run(t, "presence of a cooldown is not enough", with(ipv4Only, releaseDelay(time.Hour)), func(f *fixture) {
		id := f.allocate("router").ContainerID
		f.release("10.0.0.1")
		f.setStored(id, "10.0.0.9") // an older state
		f.setStored("a-pod", "10.0.0.1")
		f.restart(releaseDelay(time.Hour), rebooted)
		if a := f.allocate("router"); a.Holds(addr("10.0.0.1")) {
			f.t.Errorf("router got %v, which a pod has", a.Addrs())
		}
	})
}

// A request that comes before the background work, and leaves while it waits, does not replace it.
func TestRebootLeft(t *testing.T) {
	run(t, "client has left", with(ipv4Only), func(f *fixture) {
		f.allocate("health")
		f.allocate("router")
		f.clearStore()
		f.restart(ipv4Only, rebooted, gatedAdd, maxProcesses(1)) // the ADD of health waits
		if err := f.tryLeft(AllocateRequest{Owner: "router"}); err == nil {
			f.t.Fatal("router was allocated without a plugin process")
		}
		close(f.node.addGate)
		f.sleep(time.Minute)
		f.wantHeld("health", "10.0.0.1")
		f.wantHeld("router", "10.0.0.2")
		f.wantStoreAgrees()
	})
}

// Nothing can be acquired anew in a pool that has no network.
func TestRebootWithoutNetwork(t *testing.T) {
	network := func(err error) setup { return func(n *fakeNode, _ *Options) { n.networkErr = err } }
	for name, c := range map[string]struct {
		stored []string // since the reboot
		lost   bool
	}{
		"nothing left":   {nil, true},
		"an older state": {[]string{"10.0.0.9"}, false}, // which CHECK does not notice
	} {
		run(t, name, with(ipv4Only), func(f *fixture) {
			id := f.allocate("router").ContainerID
			f.clearStore()
			f.setStored(id, c.stored...)
			f.restart(rebooted, network(errors.New("no network")))
			f.sleep(time.Minute)
			if a := f.get("router"); a.Lost != c.lost || !strings.Contains(a.LastError, "no network") || !a.Verified.IsZero() {
				f.t.Errorf("router is lost: %v, want %v; last error %q, verified %v", a.Lost, c.lost, a.LastError, a.Verified)
			}
			f.node.with(func(n *fakeNode) { n.networkErr = nil })
			f.sleep(time.Hour)
			f.wantHeld("router", "10.0.0.1")
			f.wantStoreAgrees()
		})
	}
}

// A lease that is deleted behind the daemon is found without a request, where the store can be read.
func TestLookUpRounds(t *testing.T) {
	const round = lookupInterval + lookupInterval/4 + lookupPause
	run(t, "reacquired", with(ipv4Only, storeReadable), func(f *fixture) {
		f.allocate("router")
		f.clearStore()
		f.steps()
		f.sleep(round)
		f.wantSteps("write adding, DEL, ADD[10.0.0.1], write held")
		f.wantHeld("router", "10.0.0.1")
		f.wantStoreAgrees()
		f.wantCounts(counts{attachment.EventLost: 1, attachment.EventReacquired: 1})
		f.sleep(2 * round)
		f.wantSteps("")
	})
	run(t, "the store cannot be read", with(ipv4Only, storeReadable), func(f *fixture) {
		f.allocate("router")
		f.clearStore()
		f.node.with(func(n *fakeNode) { n.storeHidden = true })
		f.steps()
		f.sleep(3 * round)
		f.wantSteps("") // no CHECK
		f.wantHeld("router", "10.0.0.1")
	})
	run(t, "one address of a container is lost", with(storeReadable), func(f *fixture) {
		f.add("one", "web-0")
		owner := attachment.ContainerOwner("one", "eth0")
		f.setStored("one", "10.0.0.1")
		f.sleep(round)
		if a := f.get(owner); !a.Lost || a.State != attachment.Held {
			f.t.Errorf("the container is %s, lost %t; want it kept and lost", a.State, a.Lost)
		}
		f.restart(storeReadable)
		f.sleep(round)
		if got := f.node.store["one"]; len(got) != 1 { // a DEL would have freed it
			f.t.Errorf("the plugin has %v; want the other address", got)
		}
		f.setStored("one")
		f.restart(storeReadable)
		f.sleep(round)
		if a := f.get(owner); a.Lost || !slices.Equal(f.node.store["one"], a.Addrs()) {
			f.t.Errorf("the container is %+v, and the plugin has %v; want both addresses added again", a, f.node.store["one"])
		}
	})
	run(t, "many, a page each second", with(ipv4Only, storeReadable, manyAddresses), func(f *fixture) {
		for i := range 2*listPage + 1 {
			f.allocate(fmt.Sprintf("owner-%03d", i))
		}
		f.clearStore()
		f.sleep(round + 2*lookupPause)
		f.wantStoreAgrees()
		f.wantCounts(counts{attachment.EventLost: 2*listPage + 1, attachment.EventReacquired: 2*listPage + 1})
	})
}
