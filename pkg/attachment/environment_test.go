package attachment

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/delegated-ipam/delegated-ipam/pkg/containerid"
	"github.com/delegated-ipam/delegated-ipam/pkg/defaults"
	"github.com/delegated-ipam/delegated-ipam/pkg/delegate/call"
	"github.com/delegated-ipam/delegated-ipam/pkg/delegate/profile"
	"github.com/delegated-ipam/delegated-ipam/pkg/journal/record"
)

// The tests of this file are about an environment that is slow or that changes: late
// DELs, reboots, lost journals, clocks.

func unknownPlugin(w *fakeNode) { w.profile, w.ipv6 = known("unknown"), false }

// generation returns the generation of the ID that an owner holds.
func (s scene) wantGeneration(owner string, generation int) {
	s.Helper()
	a, _ := s.Lookup(defaults.Pool, owner)
	if want := containerid.Generation(a.ContainerID, generation); lastID(a.Record) != want {
		s.Errorf("%s holds under %s; want %s", owner, lastID(a.Record), want)
	}
}

// wantStored fails unless the plugin's store holds what the list says that owners hold.
func (s scene) wantStored() {
	s.Helper()
	s.mu()
	defer s.fakeNode.mu.Unlock()
	for _, a := range s.List() {
		if held := s.store[lastID(a.Record)]; a.State == record.Held && !sameIPs(held, a.Addrs()) {
			s.Errorf("%s holds %v, and the plugin's store %v under its ID", a.Owner, a.Addrs(), held)
		}
	}
}

// addrsOf allocates for an owner and returns its addresses.
func (s scene) addrsOf(owner string) []netip.Addr {
	s.Helper()
	a := s.allocate(owner)
	return a.Addrs()
}

func sameIPs(a, b []netip.Addr) bool {
	var x, y []call.Address
	for _, ip := range a {
		x = append(x, call.Address{Prefix: netip.PrefixFrom(ip, ip.BitLen())})
	}
	for _, ip := range b {
		y = append(y, call.Address{Prefix: netip.PrefixFrom(ip, ip.BitLen())})
	}
	return sameAddresses(x, y)
}

func TestALateDEL(t *testing.T) {
	play(t, "of a release does not free what its owner gets next", unknownPlugin, func(s scene) {
		s.allocate("router")
		s.failing(on("DEL", 1, hungLate))
		s.wantKind(s.giveBack("10.0.0.1"), Failed, "ended with an unknown outcome")
		s.allocate("router")
		s.wantGeneration("router", 1)
		time.Sleep(time.Hour)
		synctest.Wait()
		s.wantStored()
		if s.held() != 1 {
			s.Errorf("the plugin holds %v; want the live address only", s.store)
		}
	})
	play(t, "before the first ADD of an owner does not free its address", unknownPlugin, func(s scene) {
		s.failing(on("DEL", 1, hungLate))
		s.allocate("router")
		if got := s.said(); !strings.HasPrefix(got, "write adding, DEL, write adding, ADD[], write held") {
			s.Errorf("steps %s", got)
		}
		s.wantGeneration("router", 1)
		time.Sleep(time.Hour)
		synctest.Wait()
		s.wantStored()
	})
	play(t, "is remembered when the attachment is gone, until it can act no more", unknownPlugin, func(s scene) {
		s.allocate("router")
		s.failing(on("DEL", 1, hungLate))
		s.wantKind(s.giveBack("10.0.0.1"), Failed)
		time.Sleep(10 * time.Second) // the second DEL succeeds
		synctest.Wait()
		if len(s.List()) != 0 || len(s.disk) != 1 {
			s.Errorf("list %v, journal %v; want only the generation remembered", s.List(), s.disk)
		}
		s = s.again()
		s.allocate("router")
		s.wantGeneration("router", 1)
		if err := s.giveBack("10.0.0.1"); err != nil {
			s.Fatal(err)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if len(s.disk) != 0 {
			s.Errorf("journal %v; want nothing left after the DEL can act no more", s.disk)
		}
		s.allocate("router")
		s.wantGeneration("router", 0)
	})
	play(t, "that was under way at a kill is feared as well", unknownPlugin, func(s scene) {
		s.allocate("router")
		s.failing(on("DEL", 1, dieBefore))
		_ = s.giveBack("10.0.0.1")
		s = s.again()
		s.allocate("router")
		s.wantGeneration("router", 1)
	})
	play(t, "of a plugin on the node ends with a reboot", func(w *fakeNode) {
		unknownPlugin(w)
		w.profile.Store = profile.StoreNode
	}, func(s scene) {
		s.allocate("router")
		s.failing(on("DEL", 1, dieBefore))
		_ = s.giveBack("10.0.0.1")
		s = s.again(func(o *Options) { o.BootID = "boot2" })
		s.allocate("router")
		s.wantGeneration("router", 0)
	})
	play(t, "of a plugin off the node does not", unknownPlugin, func(s scene) {
		s.allocate("router")
		s.failing(on("DEL", 1, dieBefore))
		_ = s.giveBack("10.0.0.1")
		s = s.again(func(o *Options) { o.BootID = "boot2" })
		s.allocate("router")
		s.wantGeneration("router", 1)
	})
	play(t, "cannot be where a DEL ends with its process", func(w *fakeNode) { w.ipv6 = false }, func(s scene) {
		s.allocate("router")
		s.failing(on("DEL", 1, hungBefore))
		s.wantKind(s.giveBack("10.0.0.1"), Failed)
		s.allocate("router")
		s.wantGeneration("router", 0)
	})
}

func TestAReboot(t *testing.T) {
	reboot := func(o *Options) { o.BootID = "boot2" }
	play(t, "never releases a lease that the store proves", func(w *fakeNode) { w.blind = false }, func(s scene) {
		a := s.allocate("router")
		s = s.again(reboot)
		s.wantSaid("write held")
		s.wantAddress("router", a.Addrs()[0].String())
		s.wantStored()
	})
	play(t, "that lost the last writes is found out by a lookup", func(w *fakeNode) { w.blind = false }, func(s scene) {
		a := s.allocate("router")
		s.mu()
		clear(s.store)
		s.fakeNode.mu.Unlock()
		s = s.again(reboot)
		if c := s.Counters(); c.Lost != 1 || c.Reacquired != 1 {
			s.Errorf("counters %+v; want it lost and reacquired", c)
		}
		s.wantAddress("router", a.Addrs()[0].String())
	})
	play(t, "loses nothing in a store off the node: neither DEL nor ADD", func(w *fakeNode) {
		w.profile, w.ipv6 = known("calico-ipam"), false
	}, func(s scene) {
		s.allocate("router")
		s = s.again(reboot)
		s.wantSaid("write held")
	})
	play(t, "does not end an ADD at a central server", func(w *fakeNode) {
		w.profile, w.ipv6 = known("calico-ipam"), false
		w.profile.AddOutlivesSeconds, w.profile.DelOutlivesSeconds = 240, 240
	}, func(s scene) {
		s.failing(on("ADD", 1, hungLate))
		_, err := s.ask(AllocateRequest{Owner: "router"})
		s.wantKind(err, Failed)
		s = s.again(reboot)
		time.Sleep(time.Hour)
		synctest.Wait()
		if s.held() != 0 || len(s.List()) != 0 {
			s.Errorf("the plugin holds %v, and the list is %+v; want nothing", s.store, s.List())
		}
	})
}

func TestALostJournal(t *testing.T) {
	lose := func(s scene) scene {
		s.kill(s.T, s.Engine)
		s.mu()
		clear(s.disk)
		s.fakeNode.mu.Unlock()
		return s.again()
	}
	seen := func(w *fakeNode) { w.blind = false }
	play(t, "costs an owner nothing where the store can be looked up", seen, func(s scene) {
		before := s.addrsOf("router")
		s = lose(s)
		s.said()
		after := s.addrsOf("router")
		s.wantSaid("lookup, write held")
		if !sameIPs(before, after) {
			s.Errorf("router had %v and gets %v", before, after)
		}
	})
	play(t, "keeps both families when the owner asks for one after the other", seen, func(s scene) {
		before := s.addrsOf("router")
		s = lose(s)
		for _, ip := range before {
			if err := s.claim("router", ip.String()); err != nil {
				s.Error(err)
			}
		}
		if after, _ := s.Lookup(defaults.Pool, "router"); !sameIPs(before, after.Addrs()) || len(after.Claims) != 2 {
			s.Errorf("router had %v and now %v, claimed %v", before, after.Addrs(), after.Claims)
		}
	})
	play(t, "keeps the other family when an owner is restored for another address", seen, func(s scene) {
		s.allocate("router")
		s = lose(s)
		if err := s.claim("router", "10.0.0.50"); err != nil {
			s.Fatal(err)
		}
		s.wantAddress("router", "10.0.0.50")
		s.wantAddress("router", "fd00::1")
	})
	play(t, "asks the plugin where the store cannot be looked up", nil, func(s scene) {
		s.allocate("router")
		s = lose(s)
		s.said()
		s.allocate("router")
		s.wantSaid("write adding, DEL, ADD[], write held")
	})
	play(t, "never leads to an ID that a queued DEL could release", func(w *fakeNode) { w.profile, w.ipv6 = known("azure-ipam"), false }, func(s scene) {
		first := s.allocate("router")
		s.failing(on("DEL", 1, queued))
		if err := s.giveBack("10.0.0.1"); err != nil {
			s.Fatal(err)
		}
		s = lose(s)
		s.allocate("router")
		if lastID(first.Record) == s.lastID("router") {
			s.Errorf("the ID %s is used again", s.lastID("router"))
		}
		time.Sleep(24 * time.Hour)
		s.wantStored()
	})
	play(t, "leaves an adopted attachment that is released as any other", seen, func(s scene) {
		s.allocate("router")
		s = lose(s)
		for _, ip := range s.addrsOf("router") {
			if err := s.giveBack(ip.String()); err != nil {
				s.Error(err)
			}
		}
		if s.held() != 0 || len(s.disk) != 0 {
			s.Errorf("the plugin holds %v, the journal %v", s.store, s.disk)
		}
	})
	play(t, "does not make an address another attachment's, whose record has it", seen, func(s scene) {
		s.allocate("router")
		s.allocate("health")
		s.kill(s.T, s.Engine)
		s.mu()
		for id, r := range s.disk { // router's record is lost, and the store has health's addresses under its ID
			if r.Owner == "router" {
				delete(s.disk, id)
				continue
			}
			s.store[containerid.ContainerID("router", "node1", "net")] = s.store[id]
			delete(s.store, id)
		}
		s.fakeNode.mu.Unlock()
		s = s.again()
		s.allocate("router")
		synctest.Wait()
		a, _ := s.Lookup(defaults.Pool, "router")
		b, _ := s.Lookup(defaults.Pool, "health")
		for _, ip := range a.Addrs() {
			if b.Holds(ip) {
				s.Errorf("router and health have %s", ip)
			}
		}
		s.wantStored()
	})
	play(t, "is not made worse by a journal that cannot be written", seen, func(s scene) {
		before := s.addrsOf("router")
		s = lose(s)
		s.failing(on("write held", 1, diskBefore))
		_, err := s.ask(AllocateRequest{Owner: "router"})
		s.wantKind(err, Failed)
		if after := s.addrsOf("router"); !sameIPs(before, after) {
			s.Errorf("router had %v and gets %v", before, after)
		}
	})
}

func TestALookup(t *testing.T) {
	seen := func(w *fakeNode) { w.blind = false }
	play(t, "replaces CHECK", seen, func(s scene) {
		s.allocate("router")
		s.said()
		s.allocate("router")
		s.wantSaid("")
		s.wipe()
		s.allocate("router")
		s.wantSaid("write adding, DEL, ADD[10.0.0.1 fd00::1], write held")
	})
	play(t, "that does not work leaves it to CHECK", seen, func(s scene) {
		s.allocate("router")
		s.mu()
		s.blind = true
		s.fakeNode.mu.Unlock()
		s.said()
		s.allocate("router")
		s.wantSaid("CHECK")
	})
	play(t, "is not believed for an ADD that it did not prove", nil, func(s scene) {
		s.allocate("router")
		s.mu()
		s.blind = false
		s.fakeNode.mu.Unlock()
		s.said()
		s.allocate("router")
		s.wantSaid("CHECK")
	})
	play(t, "needs no plugin process: it works with every slot taken", seen, func(s scene) {
		s.allocate("router")
		if !s.processes.TryAcquire(int64(s.opts.MaxProcesses)) {
			s.Fatal("a slot is taken")
		}
		s.allocate("router")
		s.processes.Release(int64(s.opts.MaxProcesses))
	})
	play(t, "spares the DEL before the first ADD of an owner", seen, func(s scene) {
		s.allocate("router")
		s.wantSaid("lookup, write adding, ADD[], write held")
	})
}

func TestAnUnwrittenHeld(t *testing.T) {
	play(t, "is not deleted while the disk may say that it is held", unknownPlugin, func(s scene) {
		s.allocate("router")
		s.wipe()
		s.failing(func(step string) fault { // held is there, and what would undo it fails
			if strings.HasPrefix(step, "write held") {
				return diskAfter
			}
			if strings.HasPrefix(step, "write adding") && len(s.store) > 0 {
				return diskBefore
			}
			return none
		})
		_, _ = s.ask(AllocateRequest{Owner: "router"})
		s.said()
		time.Sleep(time.Hour)
		synctest.Wait()
		if got := s.said(); strings.Contains(got, "DEL") {
			s.Errorf("while the disk may say held: %s", got)
		}
		s.failing(nil)
		time.Sleep(time.Hour)
		synctest.Wait()
		if s.held() != 0 {
			s.Errorf("the plugin holds %v", s.store)
		}
	})
}

func TestAClockThatWasAhead(t *testing.T) {
	const year = 365 * 24 * time.Hour
	ahead := func(s scene, change ...func(*Options)) scene {
		s.kill(s.T, s.Engine)
		s.mu()
		s.aheadBy(year)
		s.fakeNode.mu.Unlock()
		return s.again(change...)
	}
	delay := func(o *Options) { o.ReleaseDelay = time.Minute }
	for name, o := range map[string][]func(*Options){
		"the release delay":                    {delay},
		"a release delay that is switched off": nil,
	} {
		play(t, "leaves an attachment in cooldown "+name, nil, func(s scene) {
			for _, ip := range s.addrsOf("router") {
				if err := s.giveBack(ip.String()); err != nil {
					s.Fatal(err)
				}
			}
			s = ahead(s, o...)
			if s.held() != 1 {
				s.Errorf("the plugin holds %v before the delay", s.store)
			}
			time.Sleep(2 * time.Minute)
			synctest.Wait()
			if s.held() != 0 {
				s.Errorf("the plugin holds %v after the delay", s.store)
			}
		}, delay)
	}
	play(t, "leaves what was not confirmed the expiration", nil, func(s scene) {
		if _, err := s.ask(AllocateRequest{Owner: "router", Expire: true}); err != nil {
			s.Fatal(err)
		}
		s = ahead(s)
		time.Sleep(time.Hour)
		synctest.Wait()
		if s.held() != 0 {
			s.Errorf("the plugin holds %v", s.store)
		}
	})
	play(t, "leaves an unknown ADD and a late DEL their seconds", unknownPlugin, func(s scene) {
		s.failing(func(step string) fault { // both
			if step == "ADD" || step == "DEL" {
				return hungBefore
			}
			return none
		})
		_, err := s.ask(AllocateRequest{Owner: "router"})
		s.wantKind(err, Failed)
		s = ahead(s)
		time.Sleep(time.Hour)
		synctest.Wait()
		if len(s.disk) != 0 {
			s.Errorf("journal %v", s.disk)
		}
	})
}

func TestClientsThatAskAgainDoNotPostponeTheRetry(t *testing.T) {
	play(t, "of a release", nil, func(s scene) {
		a := s.allocate("router")
		var background int
		s.watch = func(verb string, _ call.Call) {
			if verb == "DEL" {
				background++
			}
		}
		s.failing(always("DEL", refused))
		asked := 0
		for range 600 { // each second for ten minutes
			for _, ip := range a.Addrs() {
				_, err := s.Release(context.Background(), ReleaseRequest{IP: ip})
				var e *Error
				if err == nil || errors.As(err, &e) && e.Kind == Failed {
					asked++
				}
			}
			time.Sleep(time.Second)
		}
		if background <= asked {
			s.Errorf("%d DELs for %d requests; want background retries among them", background, asked)
		}
	})
}

func TestAStateFolderThatIsNotThereStopsThePlugin(t *testing.T) {
	play(t, "for requests and in the background", nil, func(s scene) {
		s.allocate("router")
		s.failing(on("DEL", 1, refused))
		_ = s.giveBack("10.0.0.1")
		_ = s.giveBack("fd00::1")
		s.mu()
		s.unavailable = errors.New("another file system is there")
		s.fakeNode.mu.Unlock()
		s.said()
		_, err := s.ask(AllocateRequest{Owner: "health"})
		s.wantKind(err, Failed, "another file system is there")
		time.Sleep(time.Hour)
		synctest.Wait()
		s.wantSaid("")
		s.mu()
		s.unavailable = nil
		s.fakeNode.mu.Unlock()
		time.Sleep(time.Hour)
		synctest.Wait()
		if s.held() != 0 {
			s.Errorf("the plugin holds %v after the folder came back", s.store)
		}
	})
}

func TestTheLastDELBeginsWhenNoADDCanActAnyMore(t *testing.T) {
	play(t, "although that one ends after it", unknownPlugin, func(s scene) {
		s.failing(on("ADD", 1, hungBefore))
		_, err := s.ask(AllocateRequest{Owner: "router"})
		s.wantKind(err, Failed)
		var began []time.Time
		s.watch = func(verb string, _ call.Call) { // each DEL takes 300 s
			if verb == "DEL" {
				began = append(began, time.Now())
				time.Sleep(300 * time.Second)
			}
		}
		deadline := time.Now().Add(240 * time.Second)
		s = s.again() // what was cut short may act for 240 s from now on
		time.Sleep(time.Hour)
		synctest.Wait()
		if len(began) == 0 || began[len(began)-1].Before(deadline) || len(s.disk) != 0 {
			s.Errorf("DELs began at %v, the ADD may act until %v, the journal holds %v", began, deadline, s.disk)
		}
	})
}
