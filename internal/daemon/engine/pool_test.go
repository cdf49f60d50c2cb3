package engine

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/daemon/attachment"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
	"github.com/delegated-ipam/delegated-ipam/pkg/client"
)

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
			if a := f.get("router"); a.State != attachment.Held || a.Holds(addr("10.0.0.1")) {
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
			op.entry.doubted = true
			f.pools[client.DefaultPool].workqueue.add(op.entry)
			op.end()
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
