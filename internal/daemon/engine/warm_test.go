package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/daemon/attachment"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/profile"
)

func warmLeases(n int) setup { return func(_ *fakeNode, o *Options) { o.WarmLeases = n } }

// remotePlugin has leases ahead, takes no requests for addresses and cannot be asked what it holds.
var remotePlugin = withProfile(pluginProfile("unknown"), func(p *profile.Profile) { p.Type, p.Depends = "remote", profile.DependsOnNothing })

// warm returns the container IDs of the leases that no container has.
func (f *fixture) warm() []string {
	var ids []string
	for _, a := range f.List() {
		if attachment.IsWarm(a.Owner) && a.State == attachment.Held {
			ids = append(ids, a.IDInUse())
		}
	}
	slices.Sort(ids)
	return ids
}

func (f *fixture) wantWarm(n int) {
	f.t.Helper()
	f.wantWarmBetween(n, n)
}

// wantWarmBetween wants a number where several are released at one time.
func (f *fixture) wantWarmBetween(least, most int) {
	f.t.Helper()
	synctest.Wait()
	if got := f.warm(); len(got) < least || len(got) > most {
		f.t.Errorf("there are %d leases ahead: %v; want %d to %d", len(got), got, least, most)
	}
	f.wantStoreAgrees()
}

// A container gets a lease by one write, and its DEL gives it back by one, both without the plugin.
func TestWarmLease(t *testing.T) {
	for name, setups := range map[string][]setup{"local": with(storeReadable), "remote": with(remotePlugin)} {
		run(t, name, append(setups, warmLeases(4)), func(f *fixture) {
			f.wantWarm(4)
			f.steps()
			first := f.add("one", "web-0")
			if again := f.add("one", "web-0"); again != first {
				f.t.Errorf("the repeated ADD returned %s; want %s", again, first)
			}
			if a := f.get(attachment.ContainerOwner("one", "eth0")); len(a.LastResult()) == 0 || a.Container().Args != podContainer("one", "web-0").Args {
				f.t.Errorf("the attachment of the container is %+v", a)
			}
			f.wantSteps("write held")
			f.wantWarm(3)
			f.del("one", "web-0")
			f.wantSteps("write held")
			f.wantWarm(4)
			f.restart(append(setups, warmLeases(4))...)
			f.wantWarm(4)
		})
	}
}

// Each change of the journal is passed on. That of an owner is the end of the one and the begin of the other.
func TestChanged(t *testing.T) {
	var mu sync.Mutex
	changes := map[string]string{} // by kind of owner: the next lease is acquired beside the hand-over of the first
	changed := func(_ *fakeNode, o *Options) {
		o.Changed = func(before, after attachment.Record) {
			kind, _, _ := strings.Cut(cmp.Or(before.Owner, after.Owner), "/")
			mu.Lock()
			defer mu.Unlock()
			changes[kind] += fmt.Sprintf("%s > %s; ", before.State, after.State)
		}
	}
	run(t, "warm lease", with(remotePlugin, changed, warmLeases(1)), func(f *fixture) {
		f.wantWarm(1)
		f.add("one", "web-0")
		f.wantWarm(1) // another one
		f.del("one", "web-0")
		f.wantWarm(2)
		f.release(f.List()[0].Addrs()[0].String())
	})
	acquired := " > adding; adding > held; "
	want := map[string]string{
		"cni":  " > held; held > cooldown; ",
		"warm": acquired + acquired + " > held; held > releasing; releasing > ; ",
	}
	if !maps.Equal(changes, want) {
		t.Errorf("got  %q\nwant %q", changes, want)
	}
}

// A runtime repeats the DEL of a sandbox, whose ID is never used again: the plugin never had it. Another container's may be.
func TestWarmRepeatedDEL(t *testing.T) {
	for name, sandbox := range map[string]bool{"sandbox": true, "other": false} {
		run(t, name, with(remotePlugin, warmLeases(4)), func(f *fixture) {
			f.wantWarm(4)
			c := podContainer("one", "web-0")
			want := "write held, write held, write releasing, DEL, remove"
			if sandbox {
				c.Args += ";K8S_POD_INFRA_CONTAINER_ID=one"
				want = "write held, write held"
			}
			f.steps()
			_, err := f.AddContainer(context.Background(), "net", c)
			for range 2 {
				_, delErr := f.DelContainer(context.Background(), "net", c)
				err = errors.Join(err, delErr)
			}
			if err != nil {
				f.t.Error(err)
			}
			if got := f.steps(); got != want {
				f.t.Errorf("steps: %s; want %s", got, want)
			}
		})
	}
}

// The leases are handed over and given back with no call of the plugin, while not more than a quarter is missing or
// left over.
func TestWarmLeasesInAnyOrder(t *testing.T) {
	run(t, "churn", with(remotePlugin, warmLeases(8)), func(f *fixture) {
		f.wantWarm(8)
		f.steps()
		f.add("a", "a")
		for i := range 20 {
			f.add(fmt.Sprint("c", i), "c")
			f.del(fmt.Sprint("c", i), "c")
		}
		f.del("a", "a")
		f.node.with(func(n *fakeNode) {
			if slices.ContainsFunc(n.steps, func(s string) bool { return s[:3] == "ADD" || s[:3] == "DEL" }) {
				f.t.Errorf("the plugin was called: %v", n.steps)
			}
		})
		f.wantWarm(8)
	})
	run(t, "refill", with(remotePlugin, warmLeases(8)), func(f *fixture) {
		f.wantWarm(8)
		for i := range 10 {
			f.add(fmt.Sprint("c", i), "c")
		}
		f.wantWarmBetween(6, 8)
		for i := range 10 {
			f.del(fmt.Sprint("c", i), "c")
		}
		f.wantWarmBetween(8, 10)
	})
	run(t, "fewer wanted", with(remotePlugin, warmLeases(8)), func(f *fixture) {
		f.wantWarm(8)
		f.restart(remotePlugin, warmLeases(2))
		f.wantWarmBetween(1, 3)
		f.restart(remotePlugin)
		f.wantWarm(0)
	})
}

// A lease that the plugin holds under two IDs, because it has lost a part of it, is for no other container.
func TestWarmLostInPart(t *testing.T) {
	for name, delay := range map[string]time.Duration{"returned": 0, "kept for the pod": time.Hour} {
		setups := with(remotePlugin, warmLeases(1), releaseDelay(delay))
		run(t, name, setups, func(f *fixture) {
			f.wantWarm(1)
			f.add("one", "web-0")
			f.wantWarm(1)
			lost := f.get(attachment.ContainerOwner("one", "eth0"))
			f.setStored(lost.IDInUse(), lost.Addrs()[1].String())
			f.allocate("router")
			f.restart(setups...) // which does not know of the loss
			f.del("one", "web-0")
			f.add("two", "web-0")
			f.sleep(2 * time.Hour)
			for _, a := range f.List() {
				if a.IDInUse() == lost.IDInUse() {
					f.t.Errorf("%s has the lease: %+v", a.Owner, a)
				}
			}
			f.wantStoreAgrees()
		})
	}
}

// Leases that are acquired, handed over and released leave nothing in memory.
func TestWarmLeasesAreForgotten(t *testing.T) {
	run(t, "surplus", with(remotePlugin, warmLeases(1)), func(f *fixture) {
		for range 3 {
			for _, id := range []string{"one", "two", "three"} {
				f.wantWarmBetween(1, 2)
				f.add(id, id)
			}
			for _, id := range []string{"one", "two", "three"} {
				f.del(id, id)
			}
			f.sleep(time.Minute)
		}
		if ids, all := len(f.byID), len(f.sorted); ids > all {
			f.t.Errorf("%d container IDs are known, and %d attachments", ids, all)
		}
	})
}

// What a lease that was acquired ahead cannot serve goes the ordinary way.
func TestNoWarmLease(t *testing.T) {
	requests := func(c *call.Container) { c.Args += ";IP=10.0.0.77" }
	for name, tt := range map[string]struct {
		setups []setup
		change func(*call.Container)
		warm   int
	}{
		"requested address":  {change: requests, warm: 4},
		"depends on the pod": {setups: with(unknownPlugin)},
		"bare":               {setups: with(func(n *fakeNode, _ *Options) { n.bare = true })},
	} {
		run(t, name, append(tt.setups, warmLeases(4)), func(f *fixture) {
			f.wantWarm(tt.warm)
			f.node.with(func(n *fakeNode) { n.bare = false })
			c := podContainer("one", "web-0")
			if tt.change != nil {
				tt.change(&c)
			}
			a, err := f.AddContainer(context.Background(), "net", c)
			if a.Lent != nil || (err != nil) != (tt.change != nil) { // the plugin does not know the request
				f.t.Errorf("got %+v, %v; want a lease of its own", a, err)
			}
			f.wantWarm(tt.warm)
		})
	}
}

// A full range ends the leases ahead one by one, for others than their pool.
func TestWarmLeasesAreGivenToOthers(t *testing.T) {
	run(t, "full", with(storeReadable, ipv4Only, warmLeases(4), func(n *fakeNode, _ *Options) { n.rangeSize = 5 }), func(f *fixture) {
		f.wantWarm(4)
		f.allocate("router")
		f.allocate("health")
		f.sleep(time.Minute)
		f.wantWarm(3)
		if w := f.Warm(); len(w) != 1 || w[0].Wanted != 4 || w[0].Ready != 3 {
			f.t.Errorf("the supply is %+v", w)
		}
		f.add("one", "web-0")
		f.add("two", "web-1")
		f.sleep(time.Minute)
		if w := f.Warm(); w[0].Ready != 1 || w[0].Err == nil {
			f.t.Errorf("the supply is %+v; want why it is too small", w)
		}
	})
}

// The pod's next container gets its lease back within the release delay, in one write; after it the lease is for others.
func TestWarmCooldown(t *testing.T) {
	run(t, "cooldown", with(remotePlugin, warmLeases(4), releaseDelay(time.Hour)), func(f *fixture) {
		f.wantWarm(4)
		first := f.add("one", "web-0")
		f.del("one", "web-0")
		f.add("other", "web-1")
		f.wantWarm(4)
		f.steps()
		if next := f.add("two", "web-0"); next != first {
			f.t.Errorf("the next container got %s; want %s", next, first)
		}
		f.wantSteps("write held")
		f.del("two", "web-0")
		f.sleep(2 * time.Hour)
		f.wantWarm(5)
	})
}

// A reboot ends the containers, and their leases are released; those that no container had are kept if they are held.
func TestWarmReboot(t *testing.T) {
	run(t, "reboot", with(remotePlugin, warmLeases(4)), func(f *fixture) {
		f.wantWarm(4)
		f.add("one", "web-0")
		before := f.warm()
		f.restart(remotePlugin, warmLeases(4), rebooted)
		f.sleep(10 * time.Minute)
		f.wantWarm(3)
		if after := f.warm(); !slices.Equal(after, before) {
			f.t.Errorf("after the reboot there are %v; want %v", after, before)
		}
	})
}

// After a hand-over, or a return, whose write failed, the disk may have either; the lease is released and nothing leaks.
func TestWarmWriteFails(t *testing.T) {
	for _, injected := range []fault{writeFailed, writeUnknown} {
		run(t, "hand-over: "+string(injected), with(remotePlugin, warmLeases(4)), func(f *fixture) {
			f.wantWarm(4)
			f.inject(once("write held", injected))
			_, err := f.AddContainer(context.Background(), "net", podContainer("one", "web-0"))
			f.wantError(err, attachment.Failed, "no space left")
			f.sleep(10 * time.Minute)
			f.wantWarm(3)
			f.restart(remotePlugin, warmLeases(4))
			f.wantWarm(3)
		})
		run(t, "return: "+string(injected), with(remotePlugin, warmLeases(4)), func(f *fixture) {
			f.wantWarm(4)
			f.add("one", "web-0")
			f.sleep(time.Minute)
			f.inject(once("write held", injected))
			_, err := f.DelContainer(context.Background(), "net", podContainer("one", "web-0"))
			f.wantError(err, attachment.Failed, "no space left")
			f.sleep(10 * time.Minute)
			f.wantWarm(3)
			f.restart(remotePlugin, warmLeases(4))
			f.wantWarm(3)
		})
	}
}

// No client of the API gets one, and root may release one.
func TestWarmOwner(t *testing.T) {
	run(t, "owner", with(storeReadable, warmLeases(2)), func(f *fixture) {
		f.wantWarm(2)
		owner := attachment.WarmOwnerPrefix + "x"
		f.wantError(f.tryAllocate(owner), attachment.Forbidden, "acquired ahead")
		f.wantError(f.tryRestore(owner, "10.0.0.9"), attachment.Forbidden, "acquired ahead")
		for _, a := range f.List() {
			f.wantError(f.tryRestore("router", a.Addrs()[0].String()), attachment.Exists, "belongs to")
		}
		f.release(f.List()[0].Addrs()[0].String())
		f.wantWarm(1)
	})
}

// A lease that the plugin has lost is not handed over.
func TestWarmLost(t *testing.T) {
	run(t, "lost", with(storeReadable, warmLeases(1)), func(f *fixture) {
		f.wantWarm(1)
		f.clearStore()
		f.add("one", "web-0")
		f.wantStoreAgrees()
		f.sleep(2 * lookupInterval)
		f.wantWarm(1)
	})
}
