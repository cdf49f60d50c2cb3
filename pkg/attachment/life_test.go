package attachment

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/delegated-ipam/delegated-ipam/pkg/containerid"
	"github.com/delegated-ipam/delegated-ipam/pkg/defaults"
	"github.com/delegated-ipam/delegated-ipam/pkg/delegate/call"
	"github.com/delegated-ipam/delegated-ipam/pkg/delegate/profile"
	"github.com/delegated-ipam/delegated-ipam/pkg/journal/record"
	"github.com/delegated-ipam/delegated-ipam/pkg/ownermatch"
)

// again kills the engine and starts another on the same world.
func (s scene) again(change ...func(*Options)) scene {
	s.Helper()
	s.kill(s.T, s.Engine)
	s.failing(nil)
	s.said()
	next := scene{s.T, s.fakeNode, s.start(s.T, change...)}
	synctest.Wait()
	return next
}

func TestStart(t *testing.T) {
	play(t, "what was held is verified once and kept", nil, func(s scene) {
		s.allocate("router")
		s = s.again()
		s.wantSaid("CHECK")
		s.wantAddress("router", "10.0.0.1")
	})
	play(t, "what the plugin lost meanwhile is reacquired to the same address", nil, func(s scene) {
		s.allocate("health")
		s.allocate("router")
		s.wipe()
		s = s.again()
		s.wantAddress("health", "10.0.0.1")
		s.wantAddress("router", "10.0.0.2")
	})
	play(t, "what cannot be asked for is reported lost and left to its owner", func(w *fakeNode) { w.profile = known("unknown") }, func(s scene) {
		s.allocate("router")
		s.mu()
		clear(s.store)
		s.store["a-pod"] = []netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("fd00::1")}
		s.profile.Lost = profile.Lost{MinCode: 100}
		s.fakeNode.mu.Unlock()
		s = s.again()
		if a, _ := s.Lookup(defaults.Pool, "router"); !a.Lost || !a.Holds(netip.MustParseAddr("10.0.0.1")) {
			s.Fatalf("after the start: %+v", a)
		}
		if a := s.allocate("router"); !a.Holds(netip.MustParseAddr("10.0.0.2")) || a.Lost {
			s.Errorf("the owner who asks gets %+v", a)
		}
	})
	play(t, "an allocation cut short before its answer is finished", nil, func(s scene) {
		for _, step := range []string{"DEL", "ADD", "write held"} {
			for _, f := range []fault{dieBefore, dieAfter} {
				s.failing(on(step, 1, f))
				if _, err := s.ask(AllocateRequest{Owner: "router"}); err == nil {
					s.Fatalf("%s %s: no error", f, step)
				}
				s = s.again()
				if step == "write held" && f == dieAfter {
					s.wantAddress("router", "10.0.0.1") // a retry finds it
					continue
				}
				if s.held() != 0 || len(s.List()) != 0 {
					s.Errorf("%s %s: the plugin holds %d, the list %+v", f, step, s.held(), s.List())
				}
			}
		}
	})
	play(t, "a release cut short is finished", func(w *fakeNode) { w.ipv6 = false }, func(s scene) {
		for _, step := range []string{"DEL", "remove"} {
			for _, f := range []fault{dieBefore, dieAfter} {
				s.allocate("router")
				s.failing(on(step, 1, f))
				if err := s.giveBack("10.0.0.1"); err == nil {
					s.Fatalf("%s %s: no error", f, step)
				}
				s = s.again()
				if s.held() != 0 || len(s.List()) != 0 || len(s.disk) != 0 {
					s.Errorf("%s %s: the plugin holds %d, the list %+v", f, step, s.held(), s.List())
				}
			}
		}
	})
	play(t, "an attachment in cooldown is given back at its deadline, not at the start", func(w *fakeNode) { w.ipv6 = false }, func(s scene) {
		s.allocate("router")
		if err := s.giveBack("10.0.0.1"); err != nil {
			s.Fatal(err)
		}
		s = s.again()
		if s.held() != 1 {
			s.Fatal("it was given back at the start")
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if s.held() != 0 {
			s.Error("it was not given back at its deadline")
		}
	}, func(o *Options) { o.ReleaseDelay = time.Hour })
	play(t, "after a reboot presence proves nothing: the same address is asked for again", nil, func(s scene) {
		s.allocate("health")
		s.allocate("router")
		s.mu()
		// The plugin lost its last writes: router's ID now has an older address.
		id, _ := s.Lookup(defaults.Pool, "router")
		s.store[id.ContainerID] = []netip.Addr{netip.MustParseAddr("10.0.0.9"), netip.MustParseAddr("fd00::9")}
		s.fakeNode.mu.Unlock()
		s = s.again(func(o *Options) { o.BootID = "boot2" })
		s.wantAddress("router", "10.0.0.2")
		s.wantAddress("health", "10.0.0.1")
		if got := s.store[id.ContainerID]; !slices.Contains(got, netip.MustParseAddr("10.0.0.2")) || len(got) != 2 {
			s.Errorf("the plugin holds %v for router", got)
		}
	})
	play(t, "an owner is found by pool and name when node and network have other names", nil, func(s scene) {
		before := s.allocate("router")
		s.network[defaults.Pool] = "renamed"
		s = s.again(func(o *Options) { o.Node = "other" })
		after := s.allocate("router")
		if before.ContainerID != after.ContainerID || !sameAddresses(before.Result.Addresses, after.Result.Addresses) {
			s.Errorf("before %+v, after %+v", before.Record, after.Record)
		}
	})
	play(t, "--retire-owners releases what --owners does not admit any more, and nothing else", nil, func(s scene) {
		s.allocate("router")
		s.allocate("ingress")
		onlyRouter := func(o *Options) { o.Owners, _ = ownermatch.Parse([]string{"router"}) }
		s = s.again(onlyRouter)
		if len(s.List()) != 2 {
			s.Fatalf("without --retire-owners something was released: %+v", s.List())
		}
		s = s.again(onlyRouter, func(o *Options) { o.RetireOwners = true })
		if l := s.List(); len(l) != 1 || l[0].Owner != "router" || s.held() != 1 {
			s.Errorf("list %+v, the plugin holds %d", l, s.held())
		}
	})
	for how, of := range map[string]struct {
		profile profile.Profile
		stored  []netip.Addr
	}{
		"":                             {profile: hostLocal()},
		", also if CHECK says yes":     {profile: hostLocal(), stored: []netip.Addr{netip.MustParseAddr("10.0.0.1")}},
		", also if nothing is asked":   {profile: known("calico-ipam")},
		", also if an ADD asks, azure": {profile: known("azure-ipam"), stored: []netip.Addr{netip.MustParseAddr("10.0.0.1")}},
	} {
		play(t, "of two records with one address the younger gets another"+how, func(w *fakeNode) { w.profile = of.profile }, func(s scene) {
			a := s.allocate("router").Record
			a.Owner, a.ContainerID = "copy", "copy-1"
			a.Created = a.Created.Add(time.Second)
			a.Invocations = []call.Invocation{a.Invocations[0]}
			a.Invocations[0].ContainerID = "copy-1"
			s.disk["copy-1"] = a
			if of.stored != nil {
				s.store["copy-1"] = of.stored
			}
			s = s.again()
			if s.Counters().Duplicates == 0 || len(s.List()) != 2 {
				s.Errorf("counters %+v, list %+v", s.Counters(), s.List())
			}
			if copied := s.allocate("copy"); copied.Holds(netip.MustParseAddr("10.0.0.1")) {
				s.Errorf("the copy is answered %v, which router has", copied.Addrs())
			}
			s.wantAddress("router", "10.0.0.1")
		})
	}
	play(t, "a record on its way back raises no alarm beside the one that has its address now", func(w *fakeNode) { w.ipv6 = false }, func(s scene) {
		a := s.allocate("router").Record
		a.Owner, a.ContainerID, a.State, a.Claims = "gone", "gone-1", record.Releasing, nil
		a.Created = a.Created.Add(time.Second)
		a.Invocations = []call.Invocation{a.Invocations[0]}
		a.Invocations[0].ContainerID = "gone-1"
		s.disk["gone-1"] = a
		s = s.again()
		if s.Counters().Duplicates != 0 || len(s.List()) != 1 {
			s.Errorf("counters %+v, list %+v", s.Counters(), s.List())
		}
		s.wantAddress("router", "10.0.0.1")
	})
	play(t, "a second record of one owner is left alone", nil, func(s scene) {
		a := s.allocate("router").Record
		a.ContainerID = "second-1"
		a.Created = a.Created.Add(time.Second)
		s.disk["second-1"] = a
		s = s.again()
		if l := s.List(); len(l) != 1 || l[0].ContainerID == "second-1" {
			s.Errorf("list %+v", l)
		}
		if _, ok := s.disk["second-1"]; !ok {
			s.Error("the second record is gone")
		}
	})
}

func TestCallContexts(t *testing.T) {
	play(t, "DEL uses the context of the ADD, whatever the configuration says today", nil, func(s scene) {
		s.allocate("router")
		s.network[defaults.Pool] = "renamed"
		var seen []string
		s.watch = func(verb string, c call.Call) { seen = append(seen, verb+" "+c.Invocation.Network) }
		if err := s.giveBack("10.0.0.1"); err != nil {
			s.Fatal(err)
		}
		if err := s.giveBack("fd00::1"); err != nil {
			s.Fatal(err)
		}
		if !slices.Equal(seen, []string{"DEL net"}) {
			s.Errorf("calls %v; want one DEL in network net", seen)
		}
	})
	play(t, "a context is kept until a DEL with it has succeeded", nil, func(s scene) {
		s.allocate("router")
		s.wipe()
		s.network[defaults.Pool] = "renamed"
		s.failing(on("DEL", 1, notStarted)) // that of the old context
		a := s.allocate("router")
		if len(a.Invocations) != 2 || a.Invocations[0].Network != "net" || a.Invocations[1].Network != "renamed" {
			s.Fatalf("contexts %+v", a.Invocations)
		}
		var seen []string
		s.watch = func(verb string, c call.Call) { seen = append(seen, verb+" "+c.Invocation.Network) }
		for _, ip := range addrs(a.Result.Addresses) {
			if err := s.giveBack(ip.String()); err != nil {
				s.Fatal(err)
			}
		}
		if !slices.Equal(seen, []string{"DEL renamed", "DEL net"}) {
			s.Errorf("calls %v; want a DEL with each context", seen)
		}
	})
	play(t, "CHECK and DEL are given what the ADD returned", nil, func(s scene) {
		s.allocate("router")
		var seen []string
		s.watch = func(verb string, c call.Call) { seen = append(seen, verb+" "+string(c.PrevResult)) }
		s.allocate("router")
		if !slices.Equal(seen, []string{`CHECK {"cniVersion":"1.1.0"}`}) {
			s.Errorf("calls %q", seen)
		}
	})
	play(t, "where a DEL can come late an ID is not used again after one", func(w *fakeNode) { w.profile, w.ipv6 = lateDel(), false }, func(s scene) {
		id := s.allocate("router").ContainerID
		first := s.lastID("router")
		if err := s.giveBack("10.0.0.1"); err != nil {
			s.Fatal(err)
		}
		if len(s.List()) != 0 || len(s.disk) != 0 {
			s.Errorf("list %+v, journal %+v; want nothing left", s.List(), s.disk)
		}
		s = s.again()
		s.allocate("router")
		second := s.lastID("router")
		if first == second || first == id || second == id || !containerid.HasForm(second) {
			s.Errorf("IDs %q and %q; want two unique ones of %q", first, second, id)
		}
	})
}

func (s scene) lastID(owner string) string {
	a, _ := s.Lookup(defaults.Pool, owner)
	return lastID(a.Record)
}

func TestPools(t *testing.T) {
	two := func(o *Options) { o.Pools = []string{defaults.Pool, "blue"} }
	blue := func(w *fakeNode) { w.network["blue"] = "blue-net" }
	play(t, "one owner has an attachment in each pool", blue, func(s scene) {
		a := s.allocate("router")
		b, err := s.ask(AllocateRequest{Owner: "router", Pool: "blue"})
		if err != nil || a.ContainerID == b.ContainerID {
			s.Fatalf("IDs %s and %s, error %v", a.ContainerID, b.ContainerID, err)
		}
		_, err = s.Release(context.Background(), ReleaseRequest{IP: b.Result.Addresses[0].Addr(), Pool: defaults.Pool})
		s.wantKind(err, NotFound)
		if _, err := s.Release(context.Background(), ReleaseRequest{IP: b.Result.Addresses[0].Addr(), Pool: "blue"}); err != nil {
			s.Error(err)
		}
	}, two)
	play(t, "what a pool that is gone holds can still be given back", blue, func(s scene) {
		b, err := s.ask(AllocateRequest{Owner: "router", Pool: "blue"})
		if err != nil {
			s.Fatal(err)
		}
		s = s.again()
		for _, ip := range addrs(b.Result.Addresses) {
			if _, err := s.Release(context.Background(), ReleaseRequest{IP: ip, Pool: "blue"}); err != nil {
				s.Error(err)
			}
		}
		if s.held() != 0 {
			s.Errorf("the plugin holds %d", s.held())
		}
	}, two)
	play(t, "a container ID that another attachment has is refused", blue, func(s scene) {
		s.allocate("router")
		s.network["blue"] = "net"
		_, err := s.ask(AllocateRequest{Owner: "router", Pool: "blue"})
		s.wantKind(err, Failed, "cilium-agent-router-", "blue", defaults.Pool)
	}, two)
}

func TestWaiting(t *testing.T) {
	gated := func(w *fakeNode) { w.gate = make(chan struct{}) }
	play(t, "a client that hangs up does not abort what has begun", gated, func(s scene) {
		ctx, hangUp := context.WithCancel(context.Background())
		done := make(chan error)
		go func() { _, err := s.Allocate(ctx, AllocateRequest{Owner: "router"}); done <- err }()
		synctest.Wait()
		hangUp()
		s.wantKind(<-done, Busy, "gone")
		s.gate <- struct{}{}
		synctest.Wait()
		s.wantAddress("router", "10.0.0.1")
	})
	play(t, "without an owner what was allocated for a client that hung up is released", gated, func(s scene) {
		ctx, hangUp := context.WithCancel(context.Background())
		done := make(chan error)
		go func() { _, err := s.Allocate(ctx, AllocateRequest{}); done <- err }()
		synctest.Wait()
		hangUp()
		s.wantKind(<-done, Busy, "gone")
		s.gate <- struct{}{}
		synctest.Wait()
		if s.held() != 0 || len(s.List()) != 0 {
			s.Errorf("the plugin holds %d, the list %+v", s.held(), s.List())
		}
	})
	play(t, "each request without an owner gets an attachment of its own", nil, func(s scene) {
		a, b := s.allocate(""), s.allocate("")
		if a.Owner == b.Owner || !strings.HasPrefix(a.Owner, generatedOwnerPrefix) || sameAddresses(a.Result.Addresses, b.Result.Addresses) {
			s.Errorf("got %+v and %+v", a.Record, b.Record)
		}
	})
	play(t, "a request past its budget is told so, and its outcome is recorded", gated, func(s scene) {
		_, err := s.ask(AllocateRequest{Owner: "router"})
		s.wantKind(err, Busy, "1m20s", "recorded")
		s.gate <- struct{}{}
		synctest.Wait()
		s.wantAddress("router", "10.0.0.1")
	})
	play(t, "a queued request whose client is gone is dropped", gated, func(s scene) {
		for _, owner := range []string{"a", "b"} {
			go s.ask(AllocateRequest{Owner: owner}) //nolint:errcheck // only the place it takes matters
		}
		synctest.Wait()
		ctx, hangUp := context.WithCancel(context.Background())
		done := make(chan error)
		go func() { _, err := s.Allocate(ctx, AllocateRequest{Owner: "late"}); done <- err }()
		synctest.Wait()
		hangUp()
		s.wantKind(<-done, Busy, "gone")
		s.gate <- struct{}{}
		s.gate <- struct{}{}
		synctest.Wait()
		if _, ok := s.Lookup(defaults.Pool, "late"); ok || s.held() != 2 {
			s.Errorf("the plugin holds %d; want the two that were not dropped", s.held())
		}
	}, func(o *Options) { o.MaxProcesses = 2 })
	play(t, "when the queue is full a request is refused at once", gated, func(s scene) {
		go s.ask(AllocateRequest{Owner: "a"}) //nolint:errcheck // only the place it takes matters
		synctest.Wait()
		_, err := s.ask(AllocateRequest{Owner: "b"})
		s.wantKind(err, Busy, "--max-queued-requests")
		if e := err.(*Error); e.RetryAfter <= 0 {
			s.Error("it does not say when to try again")
		}
		s.gate <- struct{}{}
		synctest.Wait()
	}, func(o *Options) { o.MaxQueued = 1 })
	play(t, "a held address is answered however full the queue is", gated, func(s scene) {
		go s.ask(AllocateRequest{Owner: "router"}) //nolint:errcheck // looked up below
		synctest.Wait()
		s.gate <- struct{}{}
		synctest.Wait()
		go s.ask(AllocateRequest{Owner: "a"}) //nolint:errcheck // only the place it takes matters
		synctest.Wait()
		for range 2 {
			if got := s.allocate("router"); !got.Holds(netip.MustParseAddr("10.0.0.1")) {
				s.Errorf("router is answered %v", got.Addrs())
			}
		}
		s.wantAddress("router", "10.0.0.1")
		s.gate <- struct{}{}
		synctest.Wait()
		// The places are given back, each once.
		for _, owner := range []string{"b", "c", "d"} {
			go s.ask(AllocateRequest{Owner: owner}) //nolint:errcheck // looked up below
			synctest.Wait()
			s.gate <- struct{}{}
			synctest.Wait()
			if _, ok := s.Lookup(defaults.Pool, owner); !ok {
				s.Errorf("%s was refused by an empty queue", owner)
			}
		}
	}, func(o *Options) { o.MaxQueued, o.VerifyInterval = 1, time.Hour })
	play(t, "a held address is answered while every process is busy", gated, func(s scene) {
		go s.ask(AllocateRequest{Owner: "router"}) //nolint:errcheck // looked up below
		synctest.Wait()
		s.gate <- struct{}{}
		synctest.Wait()
		go s.ask(AllocateRequest{Owner: "slow"}) //nolint:errcheck // only the process it takes matters
		synctest.Wait()
		s.allocate("router")
		s.gate <- struct{}{}
		synctest.Wait()
	}, func(o *Options) { o.MaxProcesses, o.VerifyInterval = 1, time.Hour })
	play(t, "stopping lets what runs finish, refuses the rest and releases nothing", gated, func(s scene) {
		answers := make(chan error, 2)
		for _, owner := range []string{"running", "queued"} {
			go func() { _, err := s.ask(AllocateRequest{Owner: owner}); answers <- err }()
			synctest.Wait()
		}
		stopped := make(chan error)
		go func() { stopped <- s.Stop(context.Background()) }()
		synctest.Wait()
		s.wantKind(<-answers, Stopping)
		_, err := s.ask(AllocateRequest{Owner: "new"})
		s.wantKind(err, Stopping)
		s.gate <- struct{}{}
		if err := <-answers; err != nil {
			s.Errorf("the one that ran: %v", err)
		}
		if err := <-stopped; err != nil {
			s.Error(err)
		}
		s.wantAddress("running", "10.0.0.1")
	}, func(o *Options) { o.MaxProcesses = 1 })
	play(t, "stopping gives up waiting when it is told to", gated, func(s scene) {
		go s.ask(AllocateRequest{Owner: "running"}) //nolint:errcheck // looked at through Stop
		synctest.Wait()
		ctx, giveUp := context.WithTimeout(context.Background(), time.Minute)
		defer giveUp()
		if err := s.Stop(ctx); err == nil {
			s.Error("no error although a call still runs")
		}
		s.gate <- struct{}{}
	})
}

func TestVerifyByAdd(t *testing.T) {
	byAdd := func(w *fakeNode) {
		w.profile.VerifyBy, w.profile.RepeatedAdd, w.profile.Requests = profile.VerifyAdd, profile.RepeatedAddSameAnswer, nil
	}
	play(t, "the same answer stands", byAdd, func(s scene) {
		s.allocate("router")
		s.said()
		s.allocate("router")
		s.wantSaid("ADD[]")
	})
	play(t, "another answer is given back and acquired anew", byAdd, func(s scene) {
		s.allocate("router")
		s.mu()
		clear(s.store)
		s.store["a-pod"] = []netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("fd00::1")}
		s.fakeNode.mu.Unlock()
		s.said()
		s.allocate("router")
		s.wantSaid("ADD[], write adding, write adding, DEL, ADD[], write held")
		s.wantAddress("router", "10.0.0.2")
	})
	play(t, "nothing to ask by means that the journal decides", func(w *fakeNode) { w.profile.VerifyBy = profile.VerifyNothing }, func(s scene) {
		s.allocate("router")
		s.wipe()
		s.said()
		s.allocate("router")
		s.wantSaid("")
		if a, _ := s.Lookup(defaults.Pool, "router"); a.State != record.Held {
			s.Errorf("%+v", a)
		}
	})
}

func TestProfileFields(t *testing.T) {
	play(t, "a plugin that gives everybody the same address is believed and alarms nobody", func(w *fakeNode) {
		w.profile.Unique = false
	}, func(s scene) {
		s.allocate("router")
		s.wipe()
		_, err := s.ask(AllocateRequest{Owner: "health"})
		s.wantKind(err, Failed, "every attachment", "router", "10.0.0.1")
		synctest.Wait()
		if c := s.Counters(); c.Duplicates != 0 || c.Lost != 0 {
			s.Errorf("counters %+v; want no alarm", c)
		}
		s.wantAddress("router", "10.0.0.1")
	})
	play(t, "a CHECK that always says yes is not believed alone", func(w *fakeNode) { w.profile, w.ipv6 = known("calico-ipam"), false }, func(s scene) {
		s.allocate("router")
		s.said()
		s.allocate("router")
		s.wantSaid("") // the journal decides, CHECK is never asked
		s.wipe()
		s = s.again(func(o *Options) { o.BootID = "boot2" })
		s.wantAddress("router", "10.0.0.1")
		s.wantSaid("write held") // its store is not on the node: a reboot loses nothing there
	})
	play(t, "calico's DEL always precedes an ADD, which would give a second address", func(w *fakeNode) { w.profile, w.ipv6 = known("calico-ipam"), false }, func(s scene) {
		s.allocate("router")
		s.wantSaid("write adding, DEL, ADD[], write held")
	})
	play(t, "dhcp is verified by ADD, never by CHECK, which would take a lease", func(w *fakeNode) { w.profile, w.ipv6 = known("dhcp"), false }, func(s scene) {
		s.allocate("router")
		s.said()
		s.allocate("router")
		s.wantSaid("ADD[]")
	})
	play(t, "what an azure daemon queued frees no live address when it comes", func(w *fakeNode) { w.profile, w.ipv6 = known("azure-ipam"), false }, func(s scene) {
		s.allocate("router")
		late := s.lastID("router")
		if err := s.giveBack("10.0.0.1"); err != nil {
			s.Fatal(err)
		}
		s.allocate("router")
		s.mu()
		delete(s.store, late) // the queued release is carried out now
		s.fakeNode.mu.Unlock()
		s.allocate("router")
		if c := s.Counters(); c.Lost != 0 || s.held() != 1 {
			s.Errorf("counters %+v, the plugin holds %d", c, s.held())
		}
	})
	play(t, "an address too many is given back on an allocation that asks for one, too", func(w *fakeNode) { w.ipv6 = false }, func(s scene) {
		s.allocate("router")
		s.wipe()
		s.extra = "10.0.0.99"
		s.said()
		a, err := s.ask(AllocateRequest{Owner: "router"})
		if got := s.said(); !strings.HasPrefix(got, "CHECK, write adding, DEL, ADD[10.0.0.1], write adding, DEL, ADD[]") {
			s.Errorf("answered %v, %v after %s; want what was asked for given back with what came too many", a.Addrs(), err, got)
		}
	})
	play(t, "a CHECK that compares the address is believed after a reboot too", func(w *fakeNode) { w.profile.CheckProves, w.ipv6 = profile.ProvesAddress, false }, func(s scene) {
		s.allocate("router")
		s = s.again(func(o *Options) { o.BootID = "boot2" })
		s.wantSaid("CHECK, write held")
	})
	play(t, "there is no DEL before a first ADD that can be repeated", func(w *fakeNode) { w.profile = lateDel() }, func(s scene) {
		s.allocate("router")
		s.wantSaid("write adding, ADD[], write held")
	})
	play(t, "a requested address carries the subnet it had, and its full length where that is not known", nil, func(s scene) {
		s.allocate("router")
		s.wipe()
		var asked []netip.Prefix
		s.watch = func(verb string, c call.Call) {
			if verb == "ADD" {
				asked = c.Requested
			}
		}
		s.allocate("router")
		if want := "[10.0.0.1/24 fd00::1/64]"; fmt.Sprint(asked) != want {
			s.Errorf("asked for %v; want %s", asked, want)
		}
		if err := s.claim("health", "10.0.0.40"); err != nil {
			s.Fatal(err)
		}
		if want := "[10.0.0.40/32]"; fmt.Sprint(asked) != want {
			s.Errorf("asked for %v; want %s", asked, want)
		}
	})
}
