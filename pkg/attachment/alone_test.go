package attachment

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/delegated-ipam/delegated-ipam/pkg/delegate/call"
)

// The plugin has lost everything, and returns the addresses of health to ingress, which has them for
// a second. Meanwhile health requests.
//
//evidence:design/how-it-works an address is refused because another owner's ADD has it for a moment
func TestRepeatAlone(t *testing.T) {
	start := func(t *testing.T) (f *fixture, ingress <-chan error) {
		f = newFixture(t, verifyInterval(0))
		f.allocate("health")
		f.clearStore()
		f.node.afterAdd = func(c call.Call) {
			if c.Owner == "ingress" {
				time.Sleep(time.Second)
			}
		}
		ended := make(chan error)
		go func() { ended <- f.tryAllocate("ingress") }()
		synctest.Wait()
		return f, ended
	}
	run(t, "gets its addresses", func(t *testing.T) {
		f, ingress := start(t)
		f.allocate("health")
		f.wantAddrs("health", "10.0.0.1", "fd00::1")
		<-ingress
		f.sleep(time.Hour)
		f.wantStoreAgrees()
	})
	run(t, "a pod has one of them", func(t *testing.T) {
		f, ingress := start(t)
		f.setStored("of a pod", "fd00::1")
		f.allocate("health")
		f.wantAddrs("health", "10.0.0.1", "fd00::2")
		<-ingress
		f.sleep(time.Hour)
		f.wantStored(len(f.List()) + 1)
	})
	run(t, "others wait meanwhile", func(t *testing.T) {
		f, ingress := start(t)
		health, router := make(chan error), make(chan error)
		go func() { health <- f.tryAllocate("health") }()
		synctest.Wait()
		go func() { router <- f.tryAllocate("router") }()
		for _, ended := range []<-chan error{ingress, health, router} {
			<-ended
		}
		f.wantAddrs("health", "10.0.0.1", "fd00::1")
		f.wantAddrs("router", "10.0.0.2", "fd00::2")
	})
}
