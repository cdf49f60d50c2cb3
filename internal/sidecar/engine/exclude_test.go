package engine

import (
	"context"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/plugin/profile"
	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/engine/protocol"
	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/journal/record"
)

// exclude excludes addresses and prefixes.
func exclude(list ...string) setup {
	return func(_ *fakeNode, o *Options) {
		o.Exclude = nil
		for _, text := range list {
			p, err := netip.ParsePrefix(text)
			if err != nil {
				p = netip.PrefixFrom(addr(text), addr(text).BitLen())
			}
			o.Exclude = append(o.Exclude, p)
		}
	}
}

// wantAddrs fails unless an owner holds exactly these addresses.
func (f *fixture) wantAddrs(owner string, want ...string) {
	f.t.Helper()
	a := f.get(owner)
	for _, ip := range want {
		if a.State != record.Held || len(a.Addrs()) != len(want) || !a.Holds(addr(ip)) {
			f.t.Errorf("%s is %s with %v; want it held with %v", owner, a.State, a.Addrs(), want)
			return
		}
	}
}

func TestExclude(t *testing.T) {
	const aside = "excluded:10.0.0.1"
	run(t, "set aside", func(t *testing.T) {
		f := newFixture(t, exclude("10.0.0.1"))
		f.allocate("router")
		f.wantSteps("write adding, DEL, ADD[], write adding, DEL, write adding, DEL, ADD[10.0.0.1], write held, ADD[], write held")
		f.wantAddrs("router", "10.0.0.2", "fd00::2") // with its IPv6 address
		f.wantAddrs(aside, "10.0.0.1", "fd00::1")
		if a := f.get(aside); !a.Excluded() || len(a.Claims) != 0 || f.get("router").Excluded() {
			t.Errorf("%+v is excluded: %t; want it without claims, and router not", a.Record, a.Excluded())
		}
		if got := f.Summaries()["default"].Excluded; got != 1 {
			t.Errorf("%d excluded attachments are counted; want one", got)
		}
		f.allocate("health")
		f.wantSteps("write adding, DEL, ADD[], write held") // the plugin returns it to none
	})
	run(t, "prefixes of both families", func(t *testing.T) {
		f := newFixture(t, exclude("10.0.0.0/30", "fd00::4/126"))
		f.allocate("router")
		f.wantAddrs("router", "10.0.0.8", "fd00::8")
		f.wantStoreAgrees()
	})
	for name, s := range map[string]setup{
		"no request possible":   withProfile(pluginProfile("unknown")),
		"one request possible":  requestsBy(profile.RequestCNIArgs),
		"readable store":        storeReadable,
		"single-use IDs":        withProfile(singleUseIDs()),
		"repeatable ADD":        withProfile(sameAnswer()),
		"one process":           maxProcesses(1),
		"one request at a time": maxQueued(1),
	} {
		run(t, name, func(t *testing.T) {
			f := newFixture(t, s, exclude("10.0.0.1", "fd00::2"))
			f.allocate("router")
			a := f.get("router")
			for _, ip := range a.Addrs() {
				if f.opts.Excludes(ip) {
					t.Errorf("router holds %s, which is excluded", ip)
				}
			}
			f.sleep(time.Hour)
			f.wantStoreAgrees()
			f.wantStored(len(f.List()))
		})
	}
	run(t, "bounded", func(t *testing.T) {
		f := newFixture(t, exclude("10.0.0.0/24"))
		f.wantError(f.tryAllocate("router"), protocol.Failed, "10.0.0.16", "is excluded (--exclude-addresses)", "15 results before it")
		f.sleep(time.Hour)
		if a := f.get("router"); a.State != "" {
			t.Errorf("router has %+v; want nothing", a.Record)
		}
		f.wantStored(15)
		f.wantStoreAgrees()
	})
	run(t, "returned although it is held", func(t *testing.T) {
		f := newFixture(t, exclude("10.0.0.1"))
		f.allocate("router")
		f.setStored(lastID(f.get(aside).Record)) // the plugin loses it
		f.allocate("health")
		f.wantAddrs(aside, "10.0.0.1", "fd00::1")
		f.wantAddrs("health", "10.0.0.3", "fd00::3")
	})
	run(t, "cannot be set aside", func(t *testing.T) {
		f := newFixture(t, exclude("10.0.0.1"))
		refusedOnce := once("ADD", refused)
		n := 0
		f.inject(func(step string) fault { // the second ADD is for the excluded address
			if step == "ADD" {
				if n++; n == 1 {
					return noFault
				}
			}
			return refusedOnce(step)
		})
		f.allocate("router")
		f.wantAddrs("router", "10.0.0.2", "fd00::2")
		f.sleep(time.Hour)
		f.wantStoreAgrees()
	})
	run(t, "its attachment is busy", func(t *testing.T) {
		f := newFixture(t, exclude("10.0.0.1"))
		op := f.lock(aside)
		f.wantError(f.tryAllocate("router"), protocol.Failed, "is excluded")
		op.unlock()
		f.allocate("router")
		f.wantAddrs("router", "10.0.0.2", "fd00::2")
	})
	run(t, "verified and reacquired", func(t *testing.T) {
		f := newFixture(t, exclude("10.0.0.1"))
		f.allocate("router")
		f.clearStore()
		f.restart(exclude("10.0.0.1"))
		f.sleep(time.Hour)
		f.wantAddrs(aside, "10.0.0.1", "fd00::1")
		f.wantStoreAgrees()
	})
	run(t, "released by its address", func(t *testing.T) {
		f := newFixture(t, exclude("10.0.0.1"), releaseDelay(time.Hour))
		f.allocate("router")
		f.release("10.0.0.1")
		f.wantOwners("router")
		f.wantStored(1)
	})
	run(t, "not excluded any more", func(t *testing.T) {
		f := newFixture(t, exclude("10.0.0.1", "fd00::2"))
		f.allocate("router")
		f.restart(exclude("fd00::2"), retireOwners, onlyOwner("router"))
		f.wantOwners("excluded:fd00::2", "router")
		f.restart()
		f.wantOwners("router")
		f.wantStored(1)
	})
	run(t, "cannot be requested by its owner", func(t *testing.T) {
		f := newFixture(t, exclude("10.0.0.1"))
		f.allocate("router")
		f.wantError(f.tryAllocate(aside), protocol.Forbidden, aside, "--exclude-addresses")
		f.wantError(f.tryRestore(aside, "10.0.0.9"), protocol.Forbidden)
		f.wantError(f.tryAllocate("excluded:"), protocol.Forbidden)
		f.allocate("excluded/pod") // a pod of a namespace with this name
	})
}

func TestExcludeRestore(t *testing.T) {
	run(t, "refused", func(t *testing.T) {
		f := newFixture(t, exclude("10.0.0.1"))
		f.wantError(f.tryRestore("router", "10.0.0.1"), protocol.Failed, "10.0.0.1 is excluded (--exclude-addresses)")
		f.wantSteps("")
		f.allocate("router")
		f.wantError(f.tryRestore("health", "10.0.0.1"), protocol.Failed, "is excluded")
	})
	run(t, "not requested together with another", func(t *testing.T) {
		f := newFixture(t, exclude("fd00::7"))
		f.restoreBoth("router", "10.0.0.7", "fd00::7")
		f.wantSteps("write adding, DEL, ADD[10.0.0.7], write held")
	})
	// The restored address may be in use, so it is not given up for the other family.
	run(t, "the other family is excluded", func(t *testing.T) {
		f := newFixture(t, exclude("fd00::1"))
		f.restore("router", "10.0.0.7")
		f.wantAddrs("router", "10.0.0.7", "fd00::1")
		f.wantError(f.tryRestore("router", "fd00::1"), protocol.Failed, "is excluded")
		f.wantError(f.tryAllocateWith(AllocateRequest{Owner: "router", Family: record.IPv6}), protocol.Failed, "fd00::1", "is excluded", "release the attachment")
		if a := f.allocate("router"); len(a.Claims) != 1 || !a.Claimed(record.IPv4) {
			t.Errorf("the claims are %v; want IPv4 only", a.Claims)
		}
		f.release("10.0.0.7")
		f.allocate("router")
		f.wantAddrs("router", "10.0.0.2", "fd00::2")
	})
	run(t, "found in the store", func(t *testing.T) { // after a lost journal
		f := newFixture(t, storeReadable)
		f.allocate("router")
		f.loseJournalWith(exclude("10.0.0.1"))
		f.restore("router", "fd00::1")
		f.allocateFamily("router", record.IPv4)
		f.wantBoth("router", "10.0.0.1", "fd00::1") // the other one may be in use, too
		f.release("fd00::1", "10.0.0.1")
		f.allocate("router")
		f.wantAddrs("router", "10.0.0.2", "fd00::2")
	})
	run(t, "found in the store, and in use", func(t *testing.T) {
		f := newFixture(t, storeReadable)
		f.allocate("router")
		f.loseJournalWith(exclude("10.0.0.1"))
		f.restore("router", "10.0.0.1")
		f.restore("router", "fd00::1")
		f.wantBoth("router", "10.0.0.1", "fd00::1")
		f.loseJournalWith(exclude("10.0.0.1"))
		f.allocate("router")
		f.wantBoth("router", "10.0.0.1", "fd00::1")
		f.loseJournalWith(exclude("10.0.0.2"))
		f.wantError(f.tryRestore("router", "10.0.0.2"), protocol.Failed, "is excluded")
	})
	run(t, "found in the store of another owner", func(t *testing.T) {
		f := newFixture(t, storeReadable)
		f.allocate("router")
		f.loseJournalWith(exclude("10.0.0.1"))
		f.wantError(f.tryRestore("health", "10.0.0.1"), protocol.Failed, "is excluded")
		f.wantNoAttachment()
	})
}

// What was allocated before it was excluded is served as before.
func TestExcludeLater(t *testing.T) {
	later := exclude("10.0.0.1")
	run(t, "held", func(t *testing.T) {
		f := newFixture(t)
		f.allocate("router")
		f.restart(later)
		f.restore("router", "10.0.0.1")
		f.allocate("router")
		f.wantBoth("router", "10.0.0.1", "fd00::1")
	})
	run(t, "lost", func(t *testing.T) {
		f := newFixture(t)
		f.allocate("router")
		f.clearStore()
		f.restart(later)
		f.wantBoth("router", "10.0.0.1", "fd00::1")
		f.clearStore()
		f.allocate("router")
		f.wantBoth("router", "10.0.0.1", "fd00::1")
	})
	run(t, "lost, and not requestable", func(t *testing.T) {
		f := newFixture(t, withProfile(checked()))
		f.allocate("router")
		f.clearStore()
		f.restart(later)
		f.allocate("router")
		f.wantBoth("router", "10.0.0.1", "fd00::1") // the plugin returns the same by chance
	})
	run(t, "the other family was never allocated", func(t *testing.T) {
		f := newFixture(t)
		f.allocateFamily("router", record.IPv6)
		f.restart(later)
		f.wantError(f.tryRestore("router", "10.0.0.1"), protocol.Failed, "is excluded")
		f.wantError(f.tryAllocateWith(AllocateRequest{Owner: "router", Family: record.IPv4}), protocol.Failed, "is excluded")
		f.allocateFamily("router", record.IPv6)
	})
	run(t, "in cooldown", func(t *testing.T) {
		f := newFixture(t, releaseDelay(time.Hour))
		f.allocate("router")
		f.release("10.0.0.1", "fd00::1")
		f.restart(later, releaseDelay(time.Hour))
		f.wantError(f.tryRestore("router", "10.0.0.1"), protocol.Failed, "is excluded")
		f.allocate("router")
		f.wantAddrs("router", "10.0.0.2", "fd00::2")
		f.sleep(2 * time.Hour)
		f.wantBoth("router", "10.0.0.2", "fd00::2")
	})
	run(t, "released", func(t *testing.T) {
		f := newFixture(t)
		f.allocate("router")
		f.restart(later)
		f.release("10.0.0.1", "fd00::1")
		f.wantNone()
	})
}

// Nothing leaks, and no client has an excluded address, wherever the process is killed.
func TestExcludeKilled(t *testing.T) {
	for _, step := range []string{"write adding", "write held", "DEL", "ADD"} {
		for n := 1; n <= 4; n++ {
			for _, kill := range []fault{killBefore, killAfter, timeoutAfter, writeUnknown} {
				if strings.HasPrefix(step, "write") != (kill == writeUnknown) && kill != killBefore && kill != killAfter {
					continue
				}
				run(t, strings.Join([]string{step, string(kill), string(rune('0' + n))}, " "), func(t *testing.T) {
					f := newFixture(t, exclude("10.0.0.1"), withProfile(hostLocal(), func(p *profile.Profile) { p.AddOutlivesSeconds = 60 }))
					f.inject(nth(n, step, kill))
					_, _ = f.Allocate(context.Background(), AllocateRequest{Owner: "router"})
					f.restart(exclude("10.0.0.1"))
					f.sleep(time.Hour)
					f.allocate("router")
					synctest.Wait()
					if a := f.get("router"); f.opts.Excludes(a.Addrs()[0]) {
						t.Errorf("router has %v", a.Addrs())
					}
					f.wantStoreAgrees()
					f.wantStored(len(f.List()))
				})
			}
		}
	}
}
