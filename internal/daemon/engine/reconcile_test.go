package engine

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/daemon/attachment"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
	"github.com/delegated-ipam/delegated-ipam/pkg/client"
)

func TestReconcile(t *testing.T) {
	run(t, "interrupted allocation", nil, func(f *fixture) {
		for _, step := range []string{"DEL", "ADD", "write held"} {
			for _, kill := range []fault{killBefore, killAfter} {
				f.inject(once(step, kill))
				if f.tryAllocate("router") == nil {
					f.t.Fatalf("%s %s: no error", kill, step)
				}
				f.restart()
				if step == "write held" && kill == killAfter {
					f.wantHeld("router", "10.0.0.1") // a repeated request gets it
					continue
				}
				f.wantNone()
			}
		}
	})
	run(t, "interrupted release", with(ipv4Only), func(f *fixture) {
		for _, step := range []string{"DEL", "remove"} {
			for _, kill := range []fault{killBefore, killAfter} {
				f.allocate("router")
				f.inject(once(step, kill))
				if f.tryRelease("10.0.0.1") == nil {
					f.t.Fatalf("%s %s: no error", kill, step)
				}
				f.restart()
				f.wantGone()
			}
		}
	})
	run(t, "retired owner", nil, func(f *fixture) {
		f.allocate("router")
		f.allocate("ingress")
		f.restart(onlyOwner("router"))
		f.wantOwners("ingress", "router")
		f.restart(onlyOwner("router"), retireOwners)
		f.wantStored(1)
		f.wantOwners("router")
	})
}

// countDELs counts the DELs from now on.
func (f *fixture) countDELs() *int {
	n := 0
	f.onCall(func(verb string, _ call.Call) {
		if verb == "DEL" {
			n++
		}
	})
	return &n
}

func TestRetry(t *testing.T) {
	for name, interval := range map[string]time.Duration{"recently verified": time.Hour, "verified by the request": 0} {
		setups := with(storeReadable, verifyInterval(interval))
		run(t, "DEL of an earlier container ID not repeated sooner by requests: "+name, setups, func(f *fixture) {
			f.allocate("router")
			dels := f.countDELs()
			f.inject(always(notStarted, "DEL"))
			f.addInvocation("router", func(c *call.Invocation) { c.ContainerID = "earlier" })
			i, _ := f.position(attachment.Key{Pool: client.DefaultPool, Owner: "router"})
			f.pools[client.DefaultPool].workqueue.add(f.sorted[i])
			for range 100 { // ten seconds
				f.sleep(100 * time.Millisecond)
				f.allocate("router")
			}
			if *dels > 5 { // immediately, after 1 s, 2 s and 4 s
				f.t.Errorf("%d DELs in ten seconds", *dels)
			}
			if got := f.get("router").LastError; got == "" {
				f.t.Error("the error of the DEL is not reported")
			}
			f.inject(nil)
			f.sleep(time.Minute)
			if got := f.get("router"); got.LastError != "" || len(got.Invocations) != 1 {
				f.t.Errorf("after a successful DEL: error %q, %d invocations", got.LastError, len(got.Invocations))
			}
		})
	}
	for name, allocate := range map[string]func(*fixture) error{
		"the queue is full": func(f *fixture) error {
			go f.tryRestore("slow", "10.0.0.9") //nolint:errcheck // it only waits
			synctest.Wait()
			return f.tryAllocate("router")
		},
		"the client has left": func(f *fixture) error { return f.tryLeft(AllocateRequest{Owner: "router"}) },
	} {
		run(t, "a loss is found, and "+name, with(ipv4Only, storeReadable, gatedAdd, maxQueued(1)), func(f *fixture) {
			f.startAllocate(AllocateRequest{Owner: "router"})
			f.openGate()
			had := f.get("router")
			f.clearStore()
			f.wantError(allocate(f), attachment.Busy)
			close(f.node.addGate)
			f.sleep(time.Minute)
			f.wantHeld("router", had.Addrs()[0].String())
			f.wantStoreAgrees()
		})
	}
	run(t, "not postponed by repeated releases", nil, func(f *fixture) {
		a := f.allocate("router")
		dels, requests := f.countDELs(), 0
		f.inject(always(refused, "DEL"))
		for range 600 { // each second for ten minutes
			for _, ip := range a.Addrs() {
				err := f.tryRelease(ip.String())
				if e, ok := errors.AsType[*attachment.Error](err); err == nil || ok && e.Kind == attachment.Failed {
					requests++
				}
			}
			time.Sleep(time.Second)
		}
		synctest.Wait()
		if *dels <= requests {
			f.t.Errorf("%d DELs for %d requests; want background retries among them", *dels, requests)
		}
	})
	run(t, "not postponed by rejected requests", with(ipv4Only), func(f *fixture) {
		f.allocate("router")
		f.inject(always(notStarted, "DEL"))
		f.wantError(f.tryRelease("10.0.0.1"), attachment.Failed)
		f.inject(nil)
		for range 100 { // ten seconds
			f.wantError(f.tryRestore("health", "10.0.0.1"), attachment.Exists)
			f.sleep(100 * time.Millisecond)
			if len(f.List()) == 0 {
				break
			}
		}
		f.wantStored(0)
	})
	run(t, "no plugin call without the state directory", nil, func(f *fixture) {
		f.allocate("router")
		f.inject(once("DEL", refused))
		f.release("10.0.0.1")
		f.wantError(f.tryRelease("fd00::1"), attachment.Failed)
		f.node.with(func(n *fakeNode) { n.availableErr = errors.New("another file system is there") })
		f.steps()
		f.wantError(f.tryAllocate("health"), attachment.Failed, "another file system is there")
		f.sleep(time.Hour)
		f.wantSteps("")
		f.node.with(func(n *fakeNode) { n.availableErr = nil })
		f.sleep(time.Hour)
		f.wantStored(0)
	})
	run(t, "last DEL begins when no ADD can act any more", with(unknownPlugin), func(f *fixture) {
		f.inject(once("ADD", timeoutBefore))
		f.wantError(f.tryAllocate("router"), attachment.Failed)
		var began []time.Time
		f.onCall(func(verb string, _ call.Call) {
			if verb == "DEL" { // each takes longer than the ADD may act
				began = append(began, time.Now())
				time.Sleep(300 * time.Second)
			}
		})
		deadline := time.Now().Add(240 * time.Second) // of an ADD that was interrupted now
		f.restart()
		f.sleep(time.Hour)
		if len(began) == 0 || began[len(began)-1].Before(deadline) {
			f.t.Errorf("DELs began at %v; the ADD may act until %v", began, deadline)
		}
		f.wantRecords(0)
	})
}
