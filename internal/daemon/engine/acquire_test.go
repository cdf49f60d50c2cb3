package engine

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/daemon/attachment"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/profile"
	"github.com/delegated-ipam/delegated-ipam/pkg/client"
)

func TestAcquire(t *testing.T) {
	run(t, "new owner: DEL before ADD", nil, func(f *fixture) {
		a := f.allocate("router")
		f.wantSteps("write adding, DEL, ADD[], write held")
		if got := fmt.Sprint(a.Addrs(), a.Claims); got != "[10.0.0.1 fd00::1] [ipv4 ipv6]" {
			f.t.Errorf("got %s; want an address and a claim of both families", got)
		}
	})
	for name, c := range map[string]struct {
		setup setup
		steps string
	}{
		"no DEL: repeated ADD returns the same": {withProfile(sameAnswer()), "write adding, ADD[], write held"},
		"no DEL: single-use IDs":                {withProfile(singleUseIDs()), "write adding, ADD[], write held"},
		"no DEL: empty store":                   {storeReadable, "lookup, write adding, ADD[], write held"},
		// Its second ADD would allocate a second address.
		"calico: DEL before ADD": {withProfile(pluginProfile("calico-ipam")), "write adding, DEL, ADD[], write held"},
	} {
		run(t, name, with(c.setup), func(f *fixture) {
			f.allocate("router")
			f.wantSteps(c.steps)
		})
	}
	for name, s := range map[string]setup{
		"no network configuration": func(n *fakeNode, _ *Options) { n.networkErr = errors.New("none in /opt/cni") },
		"no plugin":                func(n *fakeNode, _ *Options) { n.pluginErr = errors.New("none in /opt/cni") },
	} {
		run(t, name, with(s), func(f *fixture) {
			f.wantError(f.tryAllocate("router"), attachment.Failed, "router", "none in /opt/cni")
			f.wantSteps("")
		})
	}
	run(t, "container ID of another attachment", with(bluePool), func(f *fixture) {
		f.allocate("router")
		f.node.networks["blue"] = "net"
		err := f.try(AllocateRequest{Owner: "router", Pool: "blue"})
		f.wantError(err, attachment.Failed, "cilium-agent-router-", "blue", client.DefaultPool)
	})
	run(t, "write of adding fails", nil, func(f *fixture) {
		f.inject(always(writeFailed, "write adding"))
		f.wantError(f.tryAllocate("router"), attachment.Failed, "journal", "no space left")
		f.wantSteps("write adding, remove")
	})
	run(t, "write of held fails", nil, func(f *fixture) {
		f.inject(always(writeFailed, "write held"))
		f.wantError(f.tryAllocate("router"), attachment.Failed, "journal")
		f.wantSteps("write adding, DEL, ADD[], write held, write adding, DEL, remove")
		f.wantStored(0)
	})
	run(t, "no DEL while the disk may have held", with(checkedPlugin), func(f *fixture) {
		f.allocate("router")
		f.clearStore()
		f.inject(func(step string) fault { // held is durable, and the write that would undo it fails
			switch {
			case step == "write held":
				return writeUnknown
			case step == "write adding" && len(f.node.store) > 0:
				return writeFailed
			}
			return noFault
		})
		_ = f.tryAllocate("router")
		f.steps()
		f.sleep(time.Hour)
		if got := f.steps(); strings.Contains(got, "DEL") {
			f.t.Errorf("steps %s; want no DEL", got)
		}
		f.inject(nil)
		f.sleep(time.Hour)
		f.wantStored(0)
	})
	run(t, "two owners do not chase each other's address", with(requestsBy(profile.RequestCNIArgs)), func(f *fixture) {
		f.allocateFamily("a", attachment.IPv6)
		f.allocateFamily("b", attachment.IPv6)
		f.clearStore()
		f.setStored("a-pod", "fd00::1", "fd00::2")
		f.restart()
		before := len(strings.Split(f.steps(), ", "))
		f.sleep(time.Hour)
		if n := len(strings.Split(f.steps(), ", ")); n > 400 {
			f.t.Errorf("%d steps in an hour, after %d at the start; want a back-off", n, before)
		}
	})
}

func TestAcquireFailure(t *testing.T) {
	run(t, "failed ADD is undone", nil, func(f *fixture) {
		for _, injected := range []fault{refused, errorAfter} {
			f.inject(once("ADD", injected))
			f.wantError(f.tryAllocate("router"), attachment.Failed, "router", "cilium-agent-router-")
			f.wantSteps("write adding, DEL, ADD[], DEL, remove")
			f.wantStored(0)
		}
	})
	run(t, "failed ADD is kept until a DEL succeeds", nil, func(f *fixture) {
		f.inject(each(map[string]fault{"ADD": errorAfter, "DEL": notStarted}))
		f.wantError(f.tryAllocate("router"), attachment.Failed, "retried")
		if l := f.List(); len(l) != 1 || l[0].State != attachment.Adding {
			f.t.Fatalf("list %+v; want one in state adding", l)
		}
		f.inject(nil)
		f.sleep(time.Hour)
		f.wantNone()
	})
	run(t, "timed-out ADD is kept while it may act", with(hostLocalActsLate), func(f *fixture) {
		f.inject(once("ADD", timeoutBefore))
		f.wantError(f.tryAllocate("router"), attachment.Failed)
		l := f.List()
		if len(l) != 1 {
			f.t.Fatalf("list %+v; want the attachment", l)
		}
		time.Sleep(59 * time.Second)
		f.setStored(l[0].ContainerID, "10.0.0.9") // the ADD acts late
		f.sleep(2 * time.Second)
		f.wantNone()
	})
	run(t, "no second ADD before a DEL succeeds", nil, func(f *fixture) {
		f.allocate("router")
		f.clearStore()
		f.setStored("a-pod", "10.0.0.1")
		f.steps()
		f.inject(nth(2, "DEL", refused))
		f.wantError(f.tryAllocate("router"), attachment.Failed, "10.0.0.1 is not available")
		f.wantSteps("CHECK, write held, DEL, write adding, ADD[10.0.0.1 fd00::1], write adding, DEL, DEL")
		f.allocate("router")
		f.wantHeld("router", "fd00::1")
	})
	run(t, "lost attachment gets a DEL after its ADD", with(checkedPlugin), func(f *fixture) {
		id := f.allocate("router").ContainerID
		f.clearStore()
		f.inject(once("ADD", timeoutBefore))
		f.wantError(f.tryAllocate("router"), attachment.Failed)
		time.Sleep(100 * time.Second)
		f.setStored(id, "10.0.0.77") // the ADD acts late
		f.sleep(time.Hour)
		f.wantStored(0)
		f.steps()
		f.sleep(24 * time.Hour)
		f.wantSteps("") // it waits for its owner
	})
}

func TestRequestedAddresses(t *testing.T) {
	run(t, "prefix length", nil, func(f *fixture) { // known subnet, else the full length
		f.allocate("router")
		f.clearStore()
		var requested []netip.Prefix
		f.onCall(func(verb string, c call.Call) {
			if verb == "ADD" {
				requested = c.Requested
			}
		})
		f.allocate("router")
		if want := "[10.0.0.1/24 fd00::1/64]"; fmt.Sprint(requested) != want {
			f.t.Errorf("requested %v; want %s", requested, want)
		}
		f.restore("health", "10.0.0.40")
		if want := "[10.0.0.40/32]"; fmt.Sprint(requested) != want {
			f.t.Errorf("requested %v; want %s", requested, want)
		}
	})
	run(t, "plugin returns another address", with(ipv4Only), func(f *fixture) {
		f.allocate("first")
		f.allocate("router")
		f.release("10.0.0.1")
		f.clearStore()
		f.node.ignoresRequests = true
		f.steps()
		f.allocate("router")
		f.wantSteps("CHECK, write held, DEL, write adding, ADD[10.0.0.2], write adding, DEL, ADD[], write held")
		f.wantHeld("router", "10.0.0.1")
		f.wantStored(1)
		f.wantCounts(counts{attachment.EventLost: 1}) // not reacquired
	})
}

//evidence:operate/security it returns another owner's address
func TestDuplicate(t *testing.T) {
	run(t, "ours is released, the other verified", nil, func(f *fixture) {
		f.allocate("router")
		f.clearStore() // the plugin now allocates the same address again
		f.steps()
		f.wantError(f.tryAllocate("health"), attachment.Failed, "health", "router", "10.0.0.1")
		synctest.Wait()
		f.wantStepsPrefix("write adding, DEL, ADD[], DEL, remove, CHECK")
		f.wantHeld("router", "10.0.0.1")
		if got := f.Count(attachment.EventDuplicate); got != 1 {
			f.t.Errorf("%d duplicates counted; want one", got)
		}
		f.allocate("health")
		f.wantHeld("health", "10.0.0.2")
	})
	run(t, "the other is verified again if its verification was in progress", nil, func(f *fixture) {
		f.allocate("router")
		f.clearStore()
		op := f.lock("router")
		f.wantError(f.tryAllocate("health"), attachment.Failed, "router")
		f.steps()
		op.publish(func(s *attachment.Status) { s.Lost, s.Verified = false, time.Now() }) // what the plugin said before the duplicate
		op.end()
		synctest.Wait()
		f.wantStepsPrefix("CHECK")
	})
	notUnique := changedProfile(func(p *profile.Profile) { p.Unique = false })
	run(t, "plugin with one address for all", with(notUnique), func(f *fixture) {
		f.allocate("router")
		f.clearStore()
		f.wantError(f.tryAllocate("health"), attachment.Failed, "every attachment", "router", "10.0.0.1")
		synctest.Wait()
		f.wantCounts(counts{})
		f.wantHeld("router", "10.0.0.1")
	})
	run(t, "in a renamed network", with(ipv4Only), func(f *fixture) {
		f.allocate("router")
		f.node.networks[client.DefaultPool] = "net2"
		f.clearStore() // one store per network, as host-local has
		f.wantError(f.tryAllocate("health"), attachment.Failed, "router", "10.0.0.1")
		f.wantOwners("router")
	})
	run(t, "not with a completed release", with(ipv4Only), func(f *fixture) {
		f.allocate("router")
		f.inject(always(writeFailed, "remove"))
		f.wantError(f.tryRelease("10.0.0.1"), attachment.Failed, "could not be removed", "retried")
		f.allocate("health")
		f.wantHeld("health", "10.0.0.1")
		f.wantCounts(counts{})
		f.inject(nil)
		f.sleep(time.Hour)
		f.wantHeld("health", "10.0.0.1")
		f.wantStored(1)
		f.release("10.0.0.1")
		f.wantGone()
	})
}

// An owner whose addresses were lost gets one of them back. It may use the other one until a response has
// another address of that family, or until it releases it: nobody else gets it.
func TestGivenUp(t *testing.T) {
	for name, end := range map[string]func(*fixture){
		"told":             func(f *fixture) { f.allocateFamily("router", attachment.IPv6) },
		"released":         func(f *fixture) { f.release("fd00::1") },
		"all released":     func(f *fixture) { f.release("10.0.0.1", "fd00::1"); f.wantNoAttachment() },
		"told after start": func(f *fixture) { f.restart(); f.allocateFamily("router", attachment.IPv6) },
	} {
		run(t, name, with(storeReadable), func(f *fixture) {
			f.allocate("router")
			f.clearStore()
			f.setStored("a-pod", "fd00::1")
			f.allocateFamily("router", attachment.IPv4)
			f.wantHeld("router", "10.0.0.1")
			f.setStored("a-pod")
			f.wantError(f.tryAllocate("finder"), attachment.Failed, "fd00::1", `owner "router"`)
			f.restart()
			f.wantError(f.tryAllocate("finder"), attachment.Failed, "fd00::1", `owner "router"`)
			end(f)
			f.allocate("finder")
			f.wantHeld("finder", "fd00::1")
			f.wantStoreAgrees()
		})
	}
}

// loseHealth makes the plugin lose the address of "health", which is found when it returns it to another owner.
func (f *fixture) loseHealth() {
	f.t.Helper()
	f.setStored(f.get("health").IDInUse())
	f.wantError(f.tryAllocate("finder"), attachment.Failed, "health")
	synctest.Wait()
	if !f.get("health").Lost {
		f.t.Fatal("health is not lost")
	}
}

func TestDuplicateOfLost(t *testing.T) {
	run(t, "its attachment is busy", with(checkedPlugin), func(f *fixture) {
		f.allocate("health")
		f.loseHealth()
		op := f.lock("health")
		f.wantError(f.tryAllocate("ingress"), attachment.Failed, "has already")
		op.end()
		synctest.Wait() // its verification
		f.allocate("ingress")
		f.wantAddrs("health", "10.0.0.1")
		f.wantAddrs("ingress", "10.0.0.2")
	})
	run(t, "cannot be requested", with(checkedPlugin), func(f *fixture) {
		f.allocate("health")
		f.allocate("router")
		f.loseHealth()
		f.allocate("ingress")
		f.wantAddrs("health", "10.0.0.1")
		f.wantAddrs("ingress", "10.0.0.3")
		if f.get("health").Lost {
			f.t.Error("health is still lost")
		}
		f.sleep(time.Hour)
		f.wantStoreAgrees()
	})
	// After a lost store each request makes way for some: the others get an error until then.
	run(t, "several, the plugin continues after its last address", with(checkedPlugin, pluginContinues, func(n *fakeNode, _ *Options) { n.rangeSize = 8 }), func(f *fixture) {
		for i := range 4 {
			f.allocate(fmt.Sprint("pod-", i))
		}
		f.clearStore()
		f.restart()
		f.sleep(time.Hour)
		f.node.last = 0
		for requests := 1; f.tryAllocate("ingress") != nil; requests++ {
			synctest.Wait()
			if requests > 4 {
				f.t.Fatalf("ingress has no address after %d requests", requests)
			}
		}
		for i := range 4 {
			if a := f.get(fmt.Sprint("pod-", i)); !a.Holds(addr(fmt.Sprint("10.0.0.", i+1))) {
				f.t.Errorf("pod-%d is %+v; want its address reserved", i, a.Record)
			}
		}
		f.sleep(time.Hour)
		f.wantStored(5 - f.Summaries()[client.DefaultPool].Lost)
	})
}

// An attachment does not get the container ID of another one.
//
//evidence:operate/security two owners with one container ID, or a container with that of an owner
func TestAssignedID(t *testing.T) {
	run(t, "taken", nil, func(f *fixture) {
		f.allocate("router")
		op := f.lock("health")
		f.wantError(world{op}.AssignID(f.get("router").ContainerID), attachment.Failed, "health", "router", "release it there first")
		op.end()
		f.wantHeld("router", "10.0.0.1")
	})
}
