package engine

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/journal/record"
	"github.com/delegated-ipam/delegated-ipam/pkg/client"
)

// The plugin has lost everything, and returns the addresses of health to ingress, which has them for
// a second. Meanwhile health requests.
func TestRepeatAfterOthers(t *testing.T) {
	start := func(f *fixture) (ingress <-chan error) {
		f.allocate("health")
		f.clearStore()
		f.slowADD("ingress", time.Second)
		ingress, _ = f.startAllocate(AllocateRequest{Owner: "ingress"})
		return ingress
	}
	run(t, "gets its addresses", nil, func(f *fixture) {
		ingress := start(f)
		f.allocate("health")
		f.wantAddrs("health", "10.0.0.1", "fd00::1")
		<-ingress
		f.sleep(time.Hour)
		f.wantStoreAgrees()
	})
	run(t, "a pod has one of them", nil, func(f *fixture) {
		ingress := start(f)
		f.setStored("of a pod", "fd00::1")
		f.allocate("health")
		f.wantAddrs("health", "10.0.0.1", "fd00::2")
		<-ingress
		f.sleep(time.Hour)
		f.wantStored(len(f.List()) + 1)
	})
	run(t, "others and plugin processes do not wait meanwhile", nil, func(f *fixture) {
		ingress := start(f)
		health, _ := f.startAllocate(AllocateRequest{Owner: "health"})
		if free := f.freeProcesses(); free != f.opts.MaxProcesses-1 {
			f.t.Errorf("%d free processes; want all but the one of ingress", free)
		}
		f.wantInstantly(func() { f.allocate("router") })
		f.wantAddrs("router", "10.0.0.2", "fd00::2")
		<-ingress
		<-health
		f.wantAddrs("health", "10.0.0.1", "fd00::1")
	})
	run(t, "does not wait for long", nil, func(f *fixture) {
		start(f)
		f.setStored("of a pod", "10.0.0.1", "fd00::1")
		f.slowADD("hangs", time.Minute)
		f.startAllocate(AllocateRequest{Owner: "hangs"})
		began := time.Now()
		f.allocate("health")
		if took := time.Since(began); took < 9*time.Second || took > 11*time.Second {
			f.t.Errorf("waited for %s; want about 10 s", took)
		}
	})
}

// slowADD makes the ADDs of an owner, or in a pool, end late.
func (f *fixture) slowADD(of string, by time.Duration) {
	f.node.afterAdd = func(c call.Call) {
		if c.Owner == of || c.Pool == of {
			time.Sleep(by)
		}
	}
}

// wantInstantly fails if do waits for anything.
func (f *fixture) wantInstantly(do func()) {
	f.t.Helper()
	start := time.Now()
	do()
	if took := time.Since(start); took != 0 {
		f.t.Errorf("waited for %s", took)
	}
}

// The plugin of one pool hangs in as many calls as it can; another pool does not notice.
//
//evidence:design/reliability the plugin of one pool hangs
func TestHangingPool(t *testing.T) {
	for name, test := range map[string]func(f *fixture){
		"new owner": func(f *fixture) {
			f.startAllocate(AllocateRequest{Owner: "router"}) // which is lost
			f.allocate("ingress")
		},
		"lost owner": func(f *fixture) {
			f.allocate("router")
			f.wantHeld("router", "10.0.0.1")
		},
		"lost owner whose address a pod has": func(f *fixture) {
			f.setStored("of a pod", "10.0.0.1")
			f.allocate("router")
			if a := f.get("router"); a.State != record.Held || a.Holds(addr("10.0.0.1")) {
				f.t.Errorf("router has %v", a.Addrs())
			}
		},
		"release": func(f *fixture) {
			f.release("10.0.0.1")
			if a := f.get("router"); a.Owner != "" {
				f.t.Errorf("router still has %v", a.Addrs())
			}
		},
		"lost owner in the background": func(f *fixture) {
			op := f.lock("router")
			op.entry.verifyDue.Store(true)
			f.pools[client.DefaultPool].workqueue.add(op.entry)
			op.unlock()
			synctest.Wait()
			f.wantStored(3)
		},
	} {
		run(t, name, with(bluePool, ipv4Only, verifyInterval(0), maxProcesses(3)), func(f *fixture) {
			f.allocate("router")
			f.slowADD("blue", 30*time.Second)
			for i := range 2 * f.opts.MaxProcesses {
				f.startAllocate(AllocateRequest{Owner: fmt.Sprint("hangs-", i), Pool: "blue"})
			}
			f.setStored(f.get("router").ContainerID)
			f.wantInstantly(func() { test(f) })
		})
	}
}

// With one process for requests, background work has another one.
func TestOneProcess(t *testing.T) {
	run(t, "request during background work", with(maxProcesses(1), verifyInterval(0)), func(f *fixture) {
		f.allocate("held")
		f.node.kill(f.t, f.Engine)
		f.slowADD("held", time.Hour)
		f.clearStore()
		f.start(maxProcesses(1))
		synctest.Wait()
		f.wantInstantly(func() { f.allocate("router") })
	})
}
