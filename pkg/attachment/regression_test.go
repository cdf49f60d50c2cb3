package attachment

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/delegated-ipam/delegated-ipam/pkg/defaults"
	"github.com/delegated-ipam/delegated-ipam/pkg/delegate/call"
	"github.com/delegated-ipam/delegated-ipam/pkg/delegate/profile"
	"github.com/delegated-ipam/delegated-ipam/pkg/journal/record"
)

// TestRegressions holds what was found by trying to break the engine.
func TestRegressions(t *testing.T) {
	v4 := func(w *fakeNode) { w.ipv6 = false }
	unknown := func(w *fakeNode) { w.profile, w.ipv6 = known("unknown"), false }
	taken := func(s scene, ips ...string) {
		s.mu()
		defer s.fakeNode.mu.Unlock()
		for _, ip := range ips {
			s.store["a-pod"] = append(s.store["a-pod"], netip.MustParseAddr(ip))
		}
	}

	play(t, "a renamed network gives no address to a second owner of the pool", v4, func(s scene) {
		s.allocate("router")
		s.mu()
		s.network[defaults.Pool] = "net2"
		clear(s.store) // one store per network, as host-local has
		s.fakeNode.mu.Unlock()
		_, err := s.ask(AllocateRequest{Owner: "health"})
		s.wantKind(err, Failed, "router", "10.0.0.1")
		if l := s.List(); len(l) != 1 {
			s.Errorf("list %+v; want router alone", l)
		}
	})
	play(t, "an address whose DEL has worked may go to another owner although its record is still there", v4, func(s scene) {
		s.allocate("router")
		s.failing(always("remove", diskBefore))
		s.wantKind(s.giveBack("10.0.0.1"), Failed)
		a := s.allocate("health")
		if !a.Holds(netip.MustParseAddr("10.0.0.1")) || s.Counters().Duplicates != 0 {
			s.Errorf("health has %v, counters %+v", a.Addrs(), s.Counters())
		}
		s.failing(nil)
		time.Sleep(time.Hour)
		synctest.Wait()
		s.wantAddress("health", "10.0.0.1")
		if s.held() != 1 {
			s.Errorf("the plugin holds %d", s.held())
		}
		if err := s.giveBack("10.0.0.1"); err != nil || s.held() != 0 {
			s.Errorf("release: %v; the plugin holds %d", err, s.held())
		}
	})
	play(t, "a context is kept as long as its ADD may still act", unknown, func(s scene) {
		last := map[string]time.Time{}
		s.watch = func(verb string, c call.Call) {
			if verb == "DEL" {
				last[c.Invocation.Network] = time.Now()
			}
		}
		s.failing(on("ADD", 1, hungBefore))
		_, err := s.ask(AllocateRequest{Owner: "router"})
		s.wantKind(err, Failed)
		began := time.Now()
		s.network[defaults.Pool] = "net2"
		s.allocate("router")
		time.Sleep(time.Hour)
		synctest.Wait()
		if err := s.giveBack("10.0.0.1"); err != nil {
			s.Fatal(err)
		}
		if d := last["net"].Sub(began); d < 240*time.Second {
			s.Errorf("the last DEL of the hung ADD came %s after it; its plugin may act for 240s", d)
		}
	})
	play(t, "another address than the one asked for is given back, also where any will do at last", func(w *fakeNode) { w.ipv6 = false }, func(s scene) {
		s.allocate("first")
		s.allocate("router")
		if err := s.giveBack("10.0.0.1"); err != nil {
			s.Fatal(err)
		}
		s.mu()
		clear(s.store)
		s.deaf = true
		s.fakeNode.mu.Unlock()
		s.said()
		if router := s.allocate("router"); !router.Holds(netip.MustParseAddr("10.0.0.1")) {
			s.Errorf("router is answered %v", router.Addrs())
		}
		s.wantSaid("CHECK, write adding, DEL, ADD[10.0.0.2], write adding, DEL, ADD[], write held")
		if s.held() != 1 {
			s.Errorf("the plugin holds %d addresses, want 1", s.held())
		}
	})
	play(t, "of two lost addresses one that a pod has by now does not cost the owner the other", nil, func(s scene) {
		s.allocate("first")
		s.allocate("router")
		if err := errors.Join(s.giveBack("10.0.0.1"), s.giveBack("fd00::1")); err != nil {
			s.Fatal(err)
		}
		s.mu()
		clear(s.store)
		s.store["a-pod"] = []netip.Addr{netip.MustParseAddr("10.0.0.2")}
		s.fakeNode.mu.Unlock()
		router := s.allocate("router")
		got := router.Addrs()
		if !slices.Equal(got, []netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("fd00::2")}) {
			s.Errorf("router is answered %v; want another IPv4 address and its own fd00::2", got)
		}
	})
	play(t, "a lost attachment that cannot be asked for gets its last DEL when its ADD can no longer act", unknown, func(s scene) {
		id := s.allocate("router").ContainerID
		s.wipe()
		s.failing(on("ADD", 1, hungBefore))
		_, err := s.ask(AllocateRequest{Owner: "router"})
		s.wantKind(err, Failed)
		time.Sleep(100 * time.Second)
		s.mu()
		s.store[id] = []netip.Addr{netip.MustParseAddr("10.0.0.77")} // it lands late
		s.fakeNode.mu.Unlock()
		time.Sleep(time.Hour)
		synctest.Wait()
		if s.held() != 0 {
			s.Errorf("the plugin holds %v", s.store)
		}
		s.said()
		time.Sleep(24 * time.Hour)
		synctest.Wait()
		s.wantSaid("") // and then it waits for its owner
	})
	play(t, "an attachment in cooldown is not handed out after a reboot on its presence alone", v4, func(s scene) {
		s.allocate("router")
		if err := s.giveBack("10.0.0.1"); err != nil {
			s.Fatal(err)
		}
		s.mu()
		for id := range s.store {
			s.store[id] = []netip.Addr{netip.MustParseAddr("10.0.0.9")} // an older state
		}
		s.fakeNode.mu.Unlock()
		taken(s, "10.0.0.1")
		s = s.again(func(o *Options) { o.ReleaseDelay, o.BootID = time.Hour, "boot2" })
		if a := s.allocate("router"); a.Holds(netip.MustParseAddr("10.0.0.1")) {
			s.Errorf("router got %v, which a pod has", a.Addrs())
		}
	}, func(o *Options) { o.ReleaseDelay = time.Hour })
	play(t, "where a DEL can come late each try has an ID of its own", func(w *fakeNode) {
		w.profile, w.ipv6 = lateDel(), false
		w.profile.RepeatedAdd, w.profile.VerifyBy = profile.RepeatedAddRefused, profile.VerifyCheck
		w.profile.Requests, w.profile.Lost = hostLocal().Requests, profile.Lost{MinCode: 100}
	}, func(s scene) {
		s.allocate("router")
		s.wipe()
		taken(s, "10.0.0.1")
		deleted := map[string]bool{}
		s.watch = func(verb string, c call.Call) {
			if verb == "DEL" {
				deleted[c.ContainerID] = true
			}
			if verb == "ADD" && deleted[c.ContainerID] {
				s.Errorf("ADD with %s after a DEL", c.ContainerID)
			}
		}
		s.allocate("router")
		s.wantAddress("router", "10.0.0.2")
	})
	play(t, "an earlier generation that may still act gets its DEL while the next one is held", func(w *fakeNode) {
		w.profile, w.ipv6 = lateDel(), false
	}, func(s scene) {
		s.failing(on("ADD", 1, hungBefore))
		_, err := s.ask(AllocateRequest{Owner: "router"})
		s.wantKind(err, Failed)
		var first string
		for _, r := range s.disk {
			first = r.Invocations[0].ContainerID
		}
		a := s.allocate("router")
		if lastID(a.Record) == first {
			s.Fatalf("contexts %+v", a.Invocations)
		}
		time.Sleep(100 * time.Second)
		s.mu()
		s.store[first] = []netip.Addr{netip.MustParseAddr("10.0.0.77")}
		s.fakeNode.mu.Unlock()
		time.Sleep(time.Hour)
		synctest.Wait()
		if s.held() != 1 {
			s.Errorf("the plugin holds %v", s.store)
		}
		s.wantAddress("router", "10.0.0.1")
	})
	play(t, "an unconfirmed hand-out that was lost expires too", unknown, func(s scene) {
		ask := AllocateRequest{Owner: "router", Expire: true}
		if _, err := s.ask(ask); err != nil {
			s.Fatal(err)
		}
		s.wipe()
		s.failing(on("ADD", 1, refused))
		_, err := s.ask(ask)
		s.wantKind(err, Failed)
		time.Sleep(time.Hour)
		synctest.Wait()
		if l := s.List(); len(l) != 0 {
			s.Errorf("list %+v", l)
		}
	})
	play(t, "a hand-out that cannot be taken back at its deadline is tried again with a back-off", v4, func(s scene) {
		if _, err := s.ask(AllocateRequest{Owner: "router", Expire: true}); err != nil {
			s.Fatal(err)
		}
		s.failing(always("write releasing", diskBefore))
		time.Sleep(time.Hour)
		synctest.Wait()
		if n := strings.Count(s.said(), "write releasing"); n == 0 || n > 100 {
			s.Errorf("%d tries in an hour; want some, with a back-off", n)
		}
		s.failing(nil)
		time.Sleep(time.Hour)
		synctest.Wait()
		if s.held() != 0 {
			s.Error("it was never given back")
		}
	})
	play(t, "the last error stays until the plugin could be asked again", v4, func(s scene) {
		s.allocate("router")
		s.failing(always("CHECK", refused))
		_, err := s.ask(AllocateRequest{Owner: "router"})
		s.wantKind(err, Failed)
		time.Sleep(time.Minute)
		synctest.Wait()
		if a, _ := s.Lookup(defaults.Pool, "router"); a.LastError == "" {
			s.Error("the last error is gone although CHECK still fails")
		}
		s.failing(nil)
		time.Sleep(time.Hour)
		synctest.Wait()
		if a, _ := s.Lookup(defaults.Pool, "router"); a.LastError != "" {
			s.Errorf("the last error is still %q", a.LastError)
		}
	})
	play(t, "refused requests do not put off the background work", v4, func(s scene) {
		s.allocate("router")
		s.failing(always("DEL", notStarted))
		s.wantKind(s.giveBack("10.0.0.1"), Failed)
		s.failing(nil)
		for range 100 {
			s.wantKind(s.claim("health", "10.0.0.1"), Exists)
			time.Sleep(100 * time.Millisecond)
			synctest.Wait()
			if s.held() == 0 {
				return
			}
		}
		s.Error("ten seconds of refused requests kept the release from being tried again")
	})
	play(t, "what is held of a family that has been switched off since can be given back", nil, func(s scene) {
		s.allocate("router")
		s = s.again(func(o *Options) { o.EnableIPv6 = false })
		for _, ip := range []string{"10.0.0.1", "fd00::1"} {
			if err := s.giveBack(ip); err != nil {
				s.Error(err)
			}
		}
		if s.held() != 0 {
			s.Errorf("the plugin holds %d", s.held())
		}
	})
	play(t, "an ID whose question by ADD got another address is not asked again after its DEL", func(w *fakeNode) {
		w.profile, w.ipv6 = lateDel(), false
	}, func(s scene) {
		s.allocate("router")
		s.wipe()
		taken(s, "10.0.0.1")
		deleted := map[string]bool{}
		s.watch = func(verb string, c call.Call) {
			if verb == "DEL" {
				deleted[c.ContainerID] = true
			}
			if verb == "ADD" && deleted[c.ContainerID] {
				s.Errorf("ADD with %s after a DEL", c.ContainerID)
			}
		}
		s = s.again()
		s.allocate("router")
		s.wantAddress("router", "10.0.0.2")
	})
	for name, end := range map[string]func(scene) scene{
		"killed before it is written down": func(s scene) scene {
			s.kill(s.T, s.Engine)
			return scene{s.T, s.fakeNode, s.start(s.T)}
		},
		"that cannot be written down": func(s scene) scene { return s },
	} {
		play(t, "a question by ADD that may still allocate gets a DEL afterwards, also one "+name, func(w *fakeNode) {
			w.profile, w.ipv6 = known("dhcp"), false
		}, func(s scene) {
			id := s.allocate("router").ContainerID
			s.wipe()
			n := 0
			s.failing(func(step string) fault {
				if step == "ADD" {
					n++
				}
				switch {
				case step == "ADD" && n == 1:
					return hungBefore
				case step == "write held":
					return diskBefore
				}
				return none
			})
			_, err := s.ask(AllocateRequest{Owner: "router"})
			s.wantKind(err, Failed)
			s.failing(nil)
			s = end(s)
			if err := s.giveBack("10.0.0.1"); err != nil {
				s.Fatal(err)
			}
			time.Sleep(100 * time.Second)
			s.mu()
			s.store[id] = []netip.Addr{netip.MustParseAddr("10.0.0.77")} // it lands late
			s.fakeNode.mu.Unlock()
			time.Sleep(time.Hour)
			synctest.Wait()
			if s.held() != 0 || len(s.List()) != 0 {
				s.Errorf("the plugin holds %v, the list is %+v", s.store, s.List())
			}
		})
	}
	play(t, "an answer stays the same although the plugin lists its addresses in another order", v4, func(s scene) {
		s.extra = "10.0.0.50"
		if a, _ := s.allocate("router").Address(record.IPv4); a.Addr().String() != "10.0.0.50" {
			s.Fatalf("answered %v; want the last one", a)
		}
		got := previousLast(call.Result{Addresses: []call.Address{
			{Prefix: netip.MustParsePrefix("10.0.0.50/24")}, {Prefix: netip.MustParsePrefix("10.0.0.1/24")},
		}}, s.List()[0].Record)
		if last := got.Addresses[1].Addr().String(); last != "10.0.0.50" {
			s.Errorf("then %s would be answered", last)
		}
	})
	play(t, "nothing is remembered of an owner that was generated", func(w *fakeNode) { w.profile, w.ipv6 = lateDel(), false }, func(s scene) {
		a := s.allocate("")
		if err := s.giveBack(a.Addrs()[0].String()); err != nil {
			s.Fatal(err)
		}
		if len(s.disk) != 0 {
			s.Errorf("on disk: %v", s.disk)
		}
	})
	play(t, "what came back with another address was not reacquired", v4, func(s scene) {
		s.allocate("router")
		s.wipe()
		taken(s, "10.0.0.1")
		s.allocate("router")
		if c := s.Counters(); c.Lost != 1 || c.Reacquired != 0 {
			s.Errorf("counters %+v; want one lost and none reacquired", c)
		}
	})
	play(t, "a hand-out counts as expired once", v4, func(s scene) {
		if _, err := s.ask(AllocateRequest{Owner: "router", Expire: true}); err != nil {
			s.Fatal(err)
		}
		s.failing(always("write releasing", diskBefore))
		time.Sleep(time.Hour)
		s.failing(nil)
		time.Sleep(time.Hour)
		synctest.Wait()
		if c := s.Counters(); c.Expired != 1 {
			s.Errorf("counters %+v", c)
		}
	})
	play(t, "two lost attachments that get each other's address do not chase each other", nil, func(s scene) {
		s.profile.Requests = []profile.Request{profile.RequestCNIArgs}
		if _, err := s.ask(AllocateRequest{Owner: "a", Family: record.IPv6}); err != nil {
			s.Fatal(err)
		}
		if _, err := s.ask(AllocateRequest{Owner: "b", Family: record.IPv6}); err != nil {
			s.Fatal(err)
		}
		s.wipe()
		taken(s, "fd00::1", "fd00::2")
		s = s.again()
		before := len(strings.Split(s.said(), ", "))
		time.Sleep(time.Hour)
		synctest.Wait()
		if n := len(strings.Split(s.said(), ", ")); n > 400 {
			s.Errorf("%d steps in an hour, after %d at the start; want a back-off", n, before)
		}
	})
	play(t, "an owner whose record only a newer version can read is not served", nil, func(s scene) {
		e := New(options(), s.fakeNode, fakePlugin{s.fakeNode})
		e.RejectOwner(defaults.Pool, "router", fmt.Errorf("its record has version 99"))
		e.Start(nil)
		defer stop(s.T, e)
		_, err := e.Allocate(s.T.Context(), AllocateRequest{Owner: "router"})
		s.wantKind(err, Failed, "router", "version 99")
		s.wantSaid("")
	})
}
