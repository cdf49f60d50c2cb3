package engine

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/daemon/attachment"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
	"github.com/delegated-ipam/delegated-ipam/pkg/client"
)

func TestAllocate(t *testing.T) {
	run(t, "second family", nil, func(f *fixture) {
		f.allocateFamily("health", attachment.IPv4)
		f.steps()
		if a := f.allocateFamily("health", attachment.IPv6); len(a.Claims) != 2 {
			f.t.Fatalf("claims %v; want both families", a.Claims)
		}
		f.wantSteps("CHECK, write held")
	})
	run(t, "family added to the configuration while the address is held", with(ipv4Only), func(f *fixture) {
		f.allocate("health")
		f.node.ipv6 = true
		f.steps()
		err := f.try(AllocateRequest{Owner: "health", Family: attachment.IPv6})
		f.wantError(err, attachment.Failed, "holds [10.0.0.1], and no address of [ipv6], which only a new ADD returns", "release the attachment and allocate it again")
		f.wantSteps("CHECK")
		f.release("10.0.0.1")
		f.allocateFamily("health", attachment.IPv6)
	})
	run(t, "no response from memory after a failed write", with(ipv4Only), func(f *fixture) {
		f.allocate("router")
		f.inject(always(writeUnknown, "write releasing"))
		f.wantError(f.tryRelease("10.0.0.1"), attachment.Failed, "journal")
		f.inject(nil)
		f.steps()
		f.allocate("router")
		f.wantSteps("CHECK, write held")
		f.restart()
		f.wantStored(1) // it was allocated again, so the restart releases nothing
	})
	run(t, "of several addresses the last is returned", with(ipv4Only), func(f *fixture) {
		f.node.extraAddr = "10.0.0.50"
		if a, _ := f.allocate("router").Address(attachment.IPv4); a.Addr().String() != "10.0.0.50" {
			f.t.Fatalf("got %v; want the last one", a)
		}
	})
	run(t, "generated owners", nil, func(f *fixture) {
		a, b := f.allocate(""), f.allocate("")
		if a.Owner == b.Owner || !strings.HasPrefix(a.Owner, attachment.GeneratedOwnerPrefix) || sameAddresses(a.Result.Addresses, b.Result.Addresses) {
			f.t.Errorf("got %+v and %+v", a.Record, b.Record)
		}
	})
}

func TestRestore(t *testing.T) {
	run(t, "no record", nil, func(f *fixture) {
		f.restore("router", "10.0.0.40")
		f.wantSteps("write adding, DEL, ADD[10.0.0.40], write held")
		f.wantHeld("router", "10.0.0.40")
		if got := fmt.Sprint(f.get("router").Claims); got != "[ipv4]" {
			f.t.Errorf("claims %s; want the family of the address", got)
		}
	})
	run(t, "address of another owner", nil, func(f *fixture) {
		f.given("router")
		f.wantError(f.tryRestore("health", "10.0.0.1"), attachment.Exists, "router", "10.0.0.1")
		f.wantSteps("")
	})
	run(t, "owner holds another address", nil, func(f *fixture) {
		f.given("router")
		f.wantError(f.tryRestore("router", "10.0.0.9"), attachment.Failed, "10.0.0.1", "10.0.0.9")
		f.wantSteps("")
		f.wantHeld("router", "10.0.0.1")
	})
	run(t, "plugin refuses the address", nil, func(f *fixture) { // and no other one is requested
		f.setStored("a-pod", "10.0.0.40")
		f.wantError(f.tryRestore("router", "10.0.0.40"), attachment.Failed, "10.0.0.40 is not available")
		f.wantSteps("write adding, DEL, ADD[10.0.0.40], DEL, remove")
		f.wantNoAttachment()
		f.wantStored(1)
	})
	run(t, "plugin returns another address", nil, func(f *fixture) {
		f.node.profile.Requests = nil
		f.wantError(f.tryRestore("router", "10.0.0.40"), attachment.Failed, "10.0.0.40", "10.0.0.1")
		f.wantNone()
	})
	run(t, "CHECK and DEL request the same", nil, func(f *fixture) {
		f.restore("router", "10.0.0.40")
		calls := f.recordCalls(func(c call.Call) string { return fmt.Sprint(c.Requested) })
		f.allocate("router")
		f.release("10.0.0.40", "fd00::1")
		f.wantCalls(calls, "CHECK [10.0.0.40/32]", "DEL [10.0.0.40/32]")
	})
}

func TestCooldownEnds(t *testing.T) {
	for name, again := range map[string]func(*fixture){
		"allocate": func(f *fixture) { f.allocate("router") },
		"restore":  func(f *fixture) { f.restore("router", "10.0.0.1") },
	} {
		run(t, name, with(releaseDelay(time.Minute)), func(f *fixture) {
			f.allocate("router")
			f.release("10.0.0.1", "fd00::1")
			again(f)
			f.sleep(time.Hour)
			f.wantHeld("router", "10.0.0.1")
		})
	}
}

func TestExpiration(t *testing.T) {
	run(t, "unconfirmed attachment is released", nil, func(f *fixture) {
		a := f.allocateExpiring("default/pod")
		if a.Expiration == nil || a.Expiration.UUID == "" {
			f.t.Fatalf("expiration %+v", a.Expiration)
		}
		f.sleep(10*time.Minute - time.Second)
		f.wantHeld("default/pod", "10.0.0.1")
		f.sleep(2 * time.Second)
		f.wantNone()
		f.wantCounts(counts{attachment.EventExpired: 1})
	})
	run(t, "allocation renews UUID and deadline", nil, func(f *fixture) {
		first := f.allocateExpiring("default/pod")
		time.Sleep(9 * time.Minute)
		second := f.allocateExpiring("default/pod")
		if first.Expiration.UUID == second.Expiration.UUID {
			f.t.Fatalf("both have %s", first.Expiration.UUID)
		}
		f.sleep(9 * time.Minute)
		f.wantHeld("default/pod", "10.0.0.1")
	})
	for name, confirm := range map[string]func(*fixture){
		"allocate without expiration": func(f *fixture) { f.allocate("default/pod") },
		"restore":                     func(f *fixture) { f.restore("default/pod", "10.0.0.1") },
	} {
		run(t, "confirmed by "+name, nil, func(f *fixture) {
			f.allocateExpiring("default/pod")
			confirm(f)
			// A confirmed attachment never expires again.
			if a := f.allocateExpiring("default/pod"); a.Expiration != nil {
				f.t.Fatalf("expiration %+v; want none", a.Expiration)
			}
			f.sleep(time.Hour)
			f.wantHeld("default/pod", "10.0.0.1")
		})
	}
	run(t, "not confirmed by a reacquisition", nil, func(f *fixture) {
		f.allocateExpiring("default/pod")
		f.clearStore()
		f.restart()
		f.wantHeld("default/pod", "10.0.0.1")
		if a := f.get("default/pod"); a.Expiration == nil || a.Lost {
			f.t.Errorf("after the reacquisition: %+v", a)
		}
	})
	run(t, "lost attachment expires", with(checkedPlugin), func(f *fixture) {
		f.allocateExpiring("router")
		f.clearStore()
		f.inject(once("ADD", refused))
		f.wantError(f.try(AllocateRequest{Owner: "router", Expire: true}), attachment.Failed)
		f.sleep(time.Hour)
		f.wantNoAttachment()
	})
	run(t, "failed release is retried with a back-off, and counted once", with(ipv4Only), func(f *fixture) {
		f.allocateExpiring("router")
		f.inject(always(writeFailed, "write releasing"))
		f.sleep(time.Hour)
		if n := strings.Count(f.steps(), "write releasing"); n == 0 || n > 100 {
			f.t.Errorf("%d tries in an hour; want some, with a back-off", n)
		}
		f.inject(nil)
		f.sleep(time.Hour)
		f.wantStored(0)
		f.wantCounts(counts{attachment.EventExpired: 1})
	})
}

// A request needs neither plugin nor journal only if its addresses are held, claimed for good and recently
// verified.
func TestFromMemory(t *testing.T) {
	both := AllocateRequest{Owner: "router"}
	ipv6 := AllocateRequest{Owner: "router", Family: attachment.IPv6}
	ipv4 := AllocateRequest{Owner: "router", Family: attachment.IPv4}
	releaseBoth := func(f *fixture) { f.release("10.0.0.1", "fd00::1") }
	for name, c := range map[string]struct {
		after   func(f *fixture) // what happened since the allocation
		request AllocateRequest
		want    bool
	}{
		"both families":             {nil, both, true},
		"one family":                {nil, ipv6, true},
		"released family":           {func(f *fixture) { f.release("fd00::1") }, ipv6, false},
		"remaining family":          {func(f *fixture) { f.release("fd00::1") }, ipv4, true},
		"verified too long ago":     {func(*fixture) { time.Sleep(2 * time.Minute) }, both, false},
		"unconfirmed":               {func(f *fixture) { releaseBoth(f); f.allocateExpiring("router") }, both, false},
		"confirmed, then expiring":  {func(f *fixture) { f.allocateExpiring("router") }, both, true},
		"cooldown":                  {releaseBoth, both, false},
		"released":                  {func(f *fixture) { f.releaseNow("10.0.0.1", "fd00::1") }, both, false},
		"lost":                      {setLost, both, false},
		"being reacquired":          {setAdding, both, false},
		"disk may have another one": {func(f *fixture) { f.inject(once("write held", writeUnknown)); _ = f.tryRelease("fd00::1") }, ipv4, false},
	} {
		run(t, name, with(verifyInterval(time.Minute), releaseDelay(time.Hour)), func(f *fixture) {
			f.allocate("router")
			if c.after != nil {
				c.after(f)
			}
			f.steps()
			f.must(c.request)
			if got := f.steps(); (got == "") != c.want {
				f.t.Errorf("steps: %s", got)
			}
		})
	}
}

func setLost(f *fixture) {
	op := f.lock("router")
	defer op.end()
	op.publish(func(s *attachment.Status) { s.Lost, s.Verified = true, time.Time{} })
}

func setAdding(f *fixture) {
	op := f.lock("router")
	defer op.end()
	r := op.entry.Rec.Clone()
	r.State = attachment.Adding
	op.publish(func(s *attachment.Status) { s.Rec = &r })
}

//evidence:operate/security an owner that `--owners` does not match
func TestReject(t *testing.T) {
	onlyRouter := onlyOwner("router")
	pools := []string{"green", "default"}
	v4, v6 := addr("10.0.0.77"), addr("fd00::1")
	for name, c := range map[string]struct {
		setup   setup
		request any
		kind    attachment.Kind
		words   []string
	}{
		"allocate: owner not served": {onlyRouter, AllocateRequest{Owner: "health"}, attachment.Forbidden, []string{"health", "--owners"}},
		"restore: owner not served":  {onlyRouter, RestoreRequest{Owner: "health", IP: v4}, attachment.Forbidden, []string{"health"}},
		"allocate: family disabled":  {ipv6Disabled, AllocateRequest{Family: attachment.IPv6}, attachment.FamilyDisabled, []string{"ipv6", "--enable-ipv6"}},
		"restore: family disabled":   {ipv6Disabled, RestoreRequest{IP: v6}, attachment.FamilyDisabled, nil},
		"release: family disabled":   {ipv6Disabled, ReleaseRequest{IP: v6}, attachment.FamilyDisabled, nil},
		"allocate: unknown pool":     {nil, AllocateRequest{Pool: "green"}, attachment.UnknownPool, pools},
		"restore: unknown pool":      {nil, RestoreRequest{Pool: "green", IP: v6}, attachment.UnknownPool, pools},
		"release: unknown pool":      {nil, ReleaseRequest{Pool: "green", IP: v6}, attachment.UnknownPool, pools},
		"release: unknown address":   {nil, ReleaseRequest{IP: v4}, attachment.NotFound, []string{"10.0.0.77"}},
	} {
		run(t, name, with(c.setup), func(f *fixture) {
			f.wantError(f.try(c.request), c.kind, c.words...)
			f.wantSteps("")
			f.wantNoAttachment()
		})
	}
}

func TestPools(t *testing.T) {
	run(t, "one attachment in each", with(bluePool), func(f *fixture) {
		a := f.allocate("router")
		b := f.must(AllocateRequest{Owner: "router", Pool: "blue"})
		if a.ContainerID == b.ContainerID {
			f.t.Fatalf("both have the container ID %s", a.ContainerID)
		}
		ip := b.Addrs()[0]
		f.wantError(f.try(ReleaseRequest{Pool: client.DefaultPool, IP: ip}), attachment.NotFound)
		f.must(ReleaseRequest{Pool: "blue", IP: ip})
	})
	run(t, "release in a removed pool", with(bluePool), func(f *fixture) {
		b := f.must(AllocateRequest{Owner: "router", Pool: "blue"})
		f.restart()
		f.wantError(f.try(ReleaseRequest{Pool: "blue", IP: addr("10.0.0.77")}), attachment.NotFound)
		for _, ip := range b.Addrs() {
			f.must(ReleaseRequest{Pool: "blue", IP: ip})
		}
		f.wantStored(0)
	})
	run(t, "release of a disabled family", nil, func(f *fixture) {
		f.allocate("router")
		f.restart(ipv6Disabled)
		f.release("10.0.0.1", "fd00::1")
		f.wantStored(0)
	})
}
