package engine

import (
	"fmt"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/engine/protocol"
	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/journal/record"
)

// A lease that is deleted behind the sidecar is found without a request, where the store can be read.
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
		f.wantCounters(Counters{Lost: 1, Reacquired: 1})
		f.sleep(2 * round)
		f.wantSteps("")
	})
	run(t, "a pod has the address", with(ipv4Only, storeReadable), func(f *fixture) {
		f.allocate("router")
		f.setStored(routerID)
		f.setStored("pod", "10.0.0.1")
		f.sleep(round)
		if a := f.get("router"); !a.Lost || a.LastError == "" {
			f.t.Errorf("router is lost: %t, last error %q", a.Lost, a.LastError)
		}
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
		owner := protocol.ContainerOwner("one", "eth0")
		f.setStored("one", "10.0.0.1")
		f.sleep(round)
		if a := f.get(owner); !a.Lost || a.State != record.Held {
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
		f.wantOwners()
	})
	run(t, "many, a page each second", with(ipv4Only, storeReadable, manyAddresses), func(f *fixture) {
		for i := range 2*listPage + 1 {
			f.allocate(fmt.Sprintf("owner-%03d", i))
		}
		f.clearStore()
		f.sleep(round + 2*lookupPause)
		f.wantStoreAgrees()
		f.wantCounters(Counters{Lost: 2*listPage + 1, Reacquired: 2*listPage + 1})
	})
}
