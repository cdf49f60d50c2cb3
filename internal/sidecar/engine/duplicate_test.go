package engine

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/engine/protocol"
)

// lose makes the attachment of an owner lost: the plugin does not hold it any more.
func (f *fixture) lose(owner string) {
	f.t.Helper()
	f.setStored(lastID(f.get(owner).Record))
	if err := f.tryAllocate("finder"); err == nil {
		f.t.Fatal("the lost attachment does not have the plugin's next address")
	}
	synctest.Wait()
	if !f.get(owner).Lost {
		f.t.Fatalf("%s is %+v; want it lost", owner, f.get(owner))
	}
}

// lost counts the lost attachments.
func (f *fixture) lost() int {
	n := 0
	for _, a := range f.List() {
		if a.Lost {
			n++
		}
	}
	return n
}

func TestDuplicateOfLost(t *testing.T) {
	run(t, "cannot be requested", with(checkedPlugin), func(f *fixture) {
		f.allocate("health")
		f.allocate("router")
		f.lose("health") // the plugin returns the first free address
		f.allocate("ingress")
		f.wantAddrs("health", "10.0.0.1")
		f.wantAddrs("ingress", "10.0.0.3")
		if f.get("health").Lost {
			f.t.Error("health is still lost")
		}
		f.sleep(time.Hour)
		f.wantStoreAgrees()
	})
	run(t, "several, the plugin continues after its last address", with(checkedPlugin, func(n *fakeNode, _ *Options) { n.rangeSize, n.continues = 2*protocol.MaxRepeats, true }), func(f *fixture) {
		for i := range protocol.MaxRepeats {
			f.allocate(fmt.Sprint("pod-", i))
		}
		f.clearStore()
		f.restart()
		f.sleep(time.Hour)
		f.node.last = 0
		f.steps()
		f.allocate("ingress")
		synctest.Wait()
		steps := f.steps()
		// DEL and ADD of ingress; and for each lost attachment in the way DEL, ADD and DEL, and the
		// same when it is verified.
		calls := strings.Count(steps, "ADD") + strings.Count(steps, "DEL")
		if most := 2 + protocol.MaxRepeats*(2+3+3); calls > most {
			f.t.Errorf("%d plugin calls; want at most %d: %s", calls, most, steps)
		}
		for i := range protocol.MaxRepeats {
			if a := f.get(fmt.Sprint("pod-", i)); !a.Holds(addr(fmt.Sprint("10.0.0.", i+1))) {
				f.t.Errorf("pod-%d is %+v; want its address reserved", i, a.Record)
			}
		}
		f.sleep(time.Hour)
		f.wantStored(1 + protocol.MaxRepeats - f.lost())
	})
}
