package attachment

import (
	"context"
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
	"github.com/delegated-ipam/delegated-ipam/pkg/ownermatch"
)

// scene is one engine in a bubble of its own time.
type scene struct {
	*testing.T
	*fakeNode
	*Engine
}

// play runs a test in a bubble, so that every wait is over at once.
func play(t *testing.T, name string, set func(*fakeNode), do func(scene), change ...func(*Options)) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		t.Helper()
		synctest.Test(t, func(t *testing.T) {
			w := newWorld()
			w.ipv6 = true
			if set != nil {
				set(w)
			}
			do(scene{t, w, w.start(t, change...)})
		})
	})
}

func (s scene) allocate(owner string) Attachment {
	s.Helper()
	a, err := s.Allocate(context.Background(), AllocateRequest{Owner: owner})
	if err != nil {
		s.Fatalf("allocate %q: %v", owner, err)
	}
	return a
}

// skipDelay gives an address back without the release delay.
func (s scene) skipDelay(ip string) {
	s.Helper()
	if _, err := s.Release(context.Background(), ReleaseRequest{IP: netip.MustParseAddr(ip), SkipDelay: true}); err != nil {
		s.Fatalf("release %s: %v", ip, err)
	}
}

func (s scene) ask(r AllocateRequest) (Attachment, error) {
	return s.Allocate(context.Background(), r)
}

func (s scene) giveBack(ip string) error {
	_, err := s.Release(context.Background(), ReleaseRequest{IP: netip.MustParseAddr(ip)})
	return err
}

func (s scene) claim(owner, ip string) error {
	_, err := s.Restore(context.Background(), RestoreRequest{Owner: owner, IP: netip.MustParseAddr(ip)})
	return err
}

// said returns the calls since the last time, with container IDs left out.
func (s scene) said() string {
	s.mu()
	defer s.fakeNode.mu.Unlock()
	var short []string
	for _, c := range s.calls {
		word, rest, _ := strings.Cut(c, " ")
		switch {
		case word == "write":
			word += " " + rest
		case strings.Contains(rest, "["):
			word += rest[strings.Index(rest, "["):]
		}
		short = append(short, word)
	}
	s.calls = nil
	return strings.Join(short, ", ")
}

func (s scene) mu() { s.fakeNode.mu.Lock() }

func (s scene) failing(f func(string) fault) {
	s.mu()
	defer s.fakeNode.mu.Unlock()
	s.fault = f
}

// wipe empties the plugin's store.
func (s scene) wipe() {
	s.mu()
	defer s.fakeNode.mu.Unlock()
	clear(s.store)
}

func (s scene) held() int {
	s.mu()
	defer s.fakeNode.mu.Unlock()
	return len(s.store)
}

func (s scene) wantSaid(want string) {
	s.Helper()
	if got := s.said(); got != want {
		s.Errorf("steps:\n got %s\nwant %s", got, want)
	}
}

func (s scene) wantKind(err error, kind Kind, words ...string) {
	s.Helper()
	var e *Error
	if !errors.As(err, &e) || e.Kind != kind {
		s.Fatalf("got %v; want an error of kind %q", err, kind)
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			s.Errorf("error %q does not name %q", err, w)
		}
	}
}

func (s scene) wantAddress(owner, ip string) {
	s.Helper()
	a, ok := s.Lookup(defaults.Pool, owner)
	if !ok || !a.Holds(netip.MustParseAddr(ip)) || a.State != record.Held {
		s.Errorf("%s does not hold %s: %+v", owner, ip, a.Record)
	}
}

func noVerifyWithin(d time.Duration) func(*Options) { return func(o *Options) { o.VerifyInterval = d } }

func TestAllocate(t *testing.T) {
	play(t, "a new owner is written down, freed, added and written down again", nil, func(s scene) {
		a := s.allocate("router")
		s.wantSaid("write adding, DEL, ADD[], write held")
		if got := len(a.Result.Addresses); got != 2 || !slices.Equal(a.Claims, []record.Family{record.IPv4, record.IPv6}) {
			s.Errorf("got %d addresses and claims %v; want both families", got, a.Claims)
		}
	})
	play(t, "an owner who asks again gets the same after one question", nil, func(s scene) {
		first := s.allocate("router")
		s.said()
		again := s.allocate("router")
		s.wantSaid("CHECK")
		if !sameAddresses(first.Result.Addresses, again.Result.Addresses) {
			s.Errorf("got %v, then %v", first.Result.Addresses, again.Result.Addresses)
		}
	})
	play(t, "within the verify interval no question is asked", nil, func(s scene) {
		s.allocate("router")
		s.said()
		s.allocate("router")
		s.wantSaid("")
		time.Sleep(time.Minute)
		s.allocate("router")
		s.wantSaid("CHECK")
	}, noVerifyWithin(time.Minute))
	play(t, "a second family of one owner is a claim more and no second ADD", nil, func(s scene) {
		if _, err := s.ask(AllocateRequest{Owner: "health", Family: record.IPv4}); err != nil {
			s.Fatal(err)
		}
		s.said()
		a, err := s.ask(AllocateRequest{Owner: "health", Family: record.IPv6})
		if err != nil || len(a.Claims) != 2 {
			s.Fatalf("claims %v, error %v", a.Claims, err)
		}
		s.wantSaid("CHECK, write held")
	})
	play(t, "a family that the plugin does not return is refused and leaves nothing", func(w *fakeNode) { w.ipv6 = false }, func(s scene) {
		_, err := s.ask(AllocateRequest{Owner: "health", Family: record.IPv6})
		s.wantKind(err, Failed, "health", "ipv6", "10.0.0.1")
		s.wantSaid("write adding, DEL, ADD[], DEL, remove")
		if s.held() != 0 || len(s.List()) != 0 {
			s.Errorf("the plugin holds %d, the list %v", s.held(), s.List())
		}
	})
	play(t, "a question that could not be asked gives nothing up", nil, func(s scene) {
		s.allocate("router")
		for _, f := range []fault{notStarted, hungBefore, refused} {
			s.failing(always("CHECK", f))
			_, err := s.ask(AllocateRequest{Owner: "router"})
			s.wantKind(err, Failed, "could not verify", "router")
		}
		s.failing(nil)
		s.wantAddress("router", "10.0.0.1")
	})
	play(t, "what the plugin says it does not hold is added again with the same address", nil, func(s scene) {
		s.allocate("health")
		s.allocate("router")
		s.wipe()
		s.said()
		s.allocate("router")
		s.wantSaid("CHECK, write adding, DEL, ADD[10.0.0.2 fd00::2], write held")
		s.wantAddress("router", "10.0.0.2")
		if c := s.Counters(); c.Lost != 1 || c.Reacquired != 1 {
			s.Errorf("counters %+v; want one lost and one reacquired", c)
		}
	})
	play(t, "a plugin without CHECK is not asked", func(w *fakeNode) { w.version = "0.3.1" }, func(s scene) {
		s.allocate("router")
		s.said()
		s.allocate("router")
		s.wantSaid("")
	})
	play(t, "an ADD that failed is undone and leaves no record", nil, func(s scene) {
		for _, f := range []fault{refused, errorAfter} {
			s.failing(on("ADD", 1, f))
			_, err := s.ask(AllocateRequest{Owner: "router"})
			s.wantKind(err, Failed, "router", "cilium-agent-router-")
			s.wantSaid("write adding, DEL, ADD[], DEL, remove")
			if s.held() != 0 {
				s.Errorf("after %s the plugin holds %d", f, s.held())
			}
		}
	})
	play(t, "an ADD that failed stays adding until a DEL has succeeded", nil, func(s scene) {
		s.failing(func(step string) fault {
			switch step {
			case "ADD":
				return errorAfter
			case "DEL":
				return notStarted
			}
			return none
		})
		_, err := s.ask(AllocateRequest{Owner: "router"})
		s.wantKind(err, Failed, "retried")
		if l := s.List(); len(l) != 1 || l[0].State != record.Adding {
			s.Fatalf("list %+v; want one that is adding", l)
		}
		s.failing(nil)
		time.Sleep(time.Hour)
		synctest.Wait()
		if len(s.List()) != 0 || s.held() != 0 {
			s.Errorf("an hour later the list is %+v and the plugin holds %d", s.List(), s.held())
		}
	})
	play(t, "an ADD that hung is not believed to be over before its plugin can no longer act", func(w *fakeNode) {
		w.profile.AddOutlivesSeconds = 60
	}, func(s scene) {
		s.failing(on("ADD", 1, hungBefore))
		_, err := s.ask(AllocateRequest{Owner: "router"})
		s.wantKind(err, Failed)
		l := s.List()
		if len(l) != 1 {
			s.Fatalf("list %+v; want the attachment kept until its plugin can no longer act", l)
		}
		id := l[0].ContainerID
		time.Sleep(59 * time.Second)
		s.mu()
		s.store[id] = []netip.Addr{netip.MustParseAddr("10.0.0.9")} // it lands late
		s.fakeNode.mu.Unlock()
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if len(s.List()) != 0 || s.held() != 0 {
			s.Errorf("the late address was not given back: list %+v, plugin holds %d", s.List(), s.held())
		}
	})
	play(t, "nothing is asked of the plugin before the intention is on disk", nil, func(s scene) {
		s.failing(always("write adding", diskBefore))
		_, err := s.ask(AllocateRequest{Owner: "router"})
		s.wantKind(err, Failed, "journal", "no space left")
		s.wantSaid("write adding, remove")
	})
	play(t, "what cannot be written down as held is given back", nil, func(s scene) {
		s.failing(always("write held", diskBefore))
		_, err := s.ask(AllocateRequest{Owner: "router"})
		s.wantKind(err, Failed, "journal")
		s.wantSaid("write adding, DEL, ADD[], write held, write adding, DEL, remove")
		if s.held() != 0 {
			s.Errorf("the plugin holds %d", s.held())
		}
	})
	play(t, "after a failed write nothing is answered from memory alone", func(w *fakeNode) { w.ipv6 = false }, func(s scene) {
		s.allocate("router")
		s.failing(always("write releasing", diskAfter))
		s.wantKind(s.giveBack("10.0.0.1"), Failed, "journal")
		s.failing(nil)
		s.said()
		s.allocate("router")
		s.wantSaid("CHECK, write held")
		s.kill(s.T, s.Engine)
		s.start(s.T)
		synctest.Wait()
		if s.held() != 1 {
			s.Error("a restart released what was acknowledged again")
		}
	})
	play(t, "without a configuration nothing is changed and the reason is told", func(w *fakeNode) {
		w.noConfig = errors.New("no CNI configuration in /etc/cni/net.d")
	}, func(s scene) {
		_, err := s.ask(AllocateRequest{Owner: "router"})
		s.wantKind(err, Failed, "router", "/etc/cni/net.d")
		s.wantSaid("")
	})
	play(t, "an address that another attachment has is given back and the other verified", nil, func(s scene) {
		s.allocate("router")
		s.wipe() // host-local now hands the same address out again
		s.said()
		_, err := s.ask(AllocateRequest{Owner: "health"})
		s.wantKind(err, Failed, "health", "router", "10.0.0.1")
		synctest.Wait()
		if got := s.said(); !strings.HasPrefix(got, "write adding, DEL, ADD[], DEL, remove, CHECK") {
			s.Errorf("steps %s; want ours given back and the other one checked", got)
		}
		s.wantAddress("router", "10.0.0.1")
		if c := s.Counters(); c.Duplicates != 1 {
			s.Errorf("counters %+v; want one duplicate", c)
		}
		if a := s.allocate("health"); !a.Holds(netip.MustParseAddr("10.0.0.2")) {
			s.Errorf("then health gets %v; want 10.0.0.2", a.Result.Addresses)
		}
	})
	play(t, "a plugin whose ADD can be repeated needs no DEL before it", func(w *fakeNode) {
		w.profile.RepeatedAdd = profile.RepeatedAddSameAnswer
	}, func(s scene) {
		s.allocate("router")
		s.wantSaid("write adding, ADD[], write held")
	})
}

func TestRequestsThatAreRefusedChangeNothing(t *testing.T) {
	onlyRouter := func(o *Options) { o.Owners, _ = ownermatch.Parse([]string{"router"}) }
	noIPv6 := func(o *Options) { o.EnableIPv6 = false }
	v6 := netip.MustParseAddr("fd00::1")
	cases := []struct {
		name   string
		change func(*Options)
		do     func(scene) error
		kind   Kind
		words  []string
	}{
		{"an owner that --owners does not admit", onlyRouter, func(s scene) error {
			_, err := s.ask(AllocateRequest{Owner: "health"})
			return err
		}, Forbidden, []string{"health", "--owners"}},
		{"a restore for an owner that --owners does not admit", onlyRouter, func(s scene) error {
			return s.claim("health", "10.0.0.1")
		}, Forbidden, []string{"health"}},
		{"an allocation of a family that is off", noIPv6, func(s scene) error {
			_, err := s.ask(AllocateRequest{Owner: "router", Family: record.IPv6})
			return err
		}, FamilyDisabled, []string{"ipv6", "--enable-ipv6"}},
		{"a restore of a family that is off", noIPv6, func(s scene) error {
			return s.claim("router", v6.String())
		}, FamilyDisabled, nil},
		{"a release of a family that is off", noIPv6, func(s scene) error {
			return s.giveBack(v6.String())
		}, FamilyDisabled, nil},
		{"an allocation in an unknown pool", nil, func(s scene) error {
			_, err := s.ask(AllocateRequest{Owner: "router", Pool: "green"})
			return err
		}, UnknownPool, []string{"green", "default"}},
		{"a restore in an unknown pool", nil, func(s scene) error {
			_, err := s.Restore(context.Background(), RestoreRequest{IP: v6, Owner: "router", Pool: "green"})
			return err
		}, UnknownPool, []string{"green", "default"}},
		{"a release in an unknown pool", nil, func(s scene) error {
			_, err := s.Release(context.Background(), ReleaseRequest{IP: v6, Pool: "green"})
			return err
		}, UnknownPool, []string{"green", "default"}},
		{"a release of an address that nobody has", nil, func(s scene) error {
			return s.giveBack("10.0.0.77")
		}, NotFound, []string{"10.0.0.77"}},
	}
	for _, c := range cases {
		change := []func(*Options){}
		if c.change != nil {
			change = append(change, c.change)
		}
		play(t, c.name, nil, func(s scene) {
			s.wantKind(c.do(s), c.kind, c.words...)
			s.wantSaid("")
			if len(s.List()) != 0 {
				s.Errorf("list %v", s.List())
			}
		}, change...)
	}
}

func TestRestore(t *testing.T) {
	play(t, "an address that the owner holds is verified", nil, func(s scene) {
		s.allocate("router")
		s.said()
		if err := s.claim("router", "10.0.0.1"); err != nil {
			s.Fatal(err)
		}
		s.wantSaid("CHECK")
	})
	play(t, "an owner without a record gets exactly the address", nil, func(s scene) {
		if err := s.claim("router", "10.0.0.40"); err != nil {
			s.Fatal(err)
		}
		s.wantSaid("write adding, DEL, ADD[10.0.0.40], write held")
		s.wantAddress("router", "10.0.0.40")
		a, _ := s.Lookup(defaults.Pool, "router")
		if !slices.Equal(a.Claims, []record.Family{record.IPv4}) {
			s.Errorf("claims %v; want the family that was asked for", a.Claims)
		}
	})
	play(t, "another owner's address is refused without asking the plugin", nil, func(s scene) {
		s.allocate("router")
		s.said()
		s.wantKind(s.claim("health", "10.0.0.1"), Exists, "router", "10.0.0.1")
		s.wantSaid("")
	})
	play(t, "an owner that holds a different address keeps it", nil, func(s scene) {
		s.allocate("router")
		s.said()
		s.wantKind(s.claim("router", "10.0.0.9"), Failed, "10.0.0.1", "10.0.0.9")
		s.wantSaid("")
		s.wantAddress("router", "10.0.0.1")
	})
	play(t, "an address that the plugin will not give is a clean failure", nil, func(s scene) {
		s.mu()
		s.store["a-pod"] = []netip.Addr{netip.MustParseAddr("10.0.0.40")}
		s.fakeNode.mu.Unlock()
		s.wantKind(s.claim("router", "10.0.0.40"), Failed, "10.0.0.40")
		if len(s.List()) != 0 || s.held() != 1 {
			s.Errorf("list %v, plugin holds %d; want nothing of ours", s.List(), s.held())
		}
	})
	play(t, "a plugin that gives another address loses it again", func(w *fakeNode) { w.profile.Requests = nil }, func(s scene) {
		s.wantKind(s.claim("router", "10.0.0.40"), Failed, "10.0.0.40", "10.0.0.1")
		if len(s.List()) != 0 || s.held() != 0 {
			s.Errorf("list %v, plugin holds %d; want nothing", s.List(), s.held())
		}
	})
	play(t, "an address too many that came with it is given back with it", nil, func(s scene) {
		s.extra = "10.0.0.99"
		s.wantKind(s.claim("router", "10.0.0.40"), Failed, "10.0.0.40", "10.0.0.99")
		if len(s.List()) != 0 || s.held() != 0 {
			s.Errorf("list %v, plugin holds %d; want nothing", s.List(), s.held())
		}
	})
	play(t, "CHECK and DEL ask for what the ADD asked for", nil, func(s scene) {
		if err := s.claim("router", "10.0.0.40"); err != nil {
			s.Fatal(err)
		}
		var seen []string
		s.watch = func(verb string, c call.Call) { seen = append(seen, fmt.Sprint(verb, c.Requested)) }
		s.allocate("router")
		if err := errors.Join(s.giveBack("10.0.0.40"), s.giveBack("fd00::1")); err != nil {
			s.Fatal(err)
		}
		if want := []string{"CHECK[10.0.0.40/32]", "DEL[10.0.0.40/32]"}; !slices.Equal(seen, want) {
			s.Errorf("calls %v; want %v", seen, want)
		}
	})
	play(t, "an address in cooldown is held again", nil, func(s scene) {
		s.allocate("router")
		if err := errors.Join(s.giveBack("10.0.0.1"), s.giveBack("fd00::1")); err != nil {
			s.Fatal(err)
		}
		if err := s.claim("router", "10.0.0.1"); err != nil {
			s.Fatal(err)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		s.wantAddress("router", "10.0.0.1")
	}, func(o *Options) { o.ReleaseDelay = time.Minute })
	play(t, "an address of the plugin's lost store comes back", nil, func(s scene) {
		s.allocate("router")
		s.wipe()
		if err := s.claim("router", "10.0.0.1"); err != nil {
			s.Fatal(err)
		}
		s.wantAddress("router", "10.0.0.1")
	})
}

func TestRelease(t *testing.T) {
	play(t, "the last claim gives everything back, the first only itself", nil, func(s scene) {
		s.allocate("router")
		s.said()
		if err := s.giveBack("10.0.0.1"); err != nil {
			s.Fatal(err)
		}
		s.wantSaid("write held")
		s.wantKind(s.giveBack("10.0.0.1"), NotFound)
		if err := s.giveBack("fd00::1"); err != nil {
			s.Fatal(err)
		}
		s.wantSaid("write releasing, DEL, remove")
		if s.held() != 0 || len(s.List()) != 0 {
			s.Errorf("the plugin holds %d, the list %v", s.held(), s.List())
		}
	})
	play(t, "what changed hands while a release waited for its turn is left alone", nil, func(s scene) {
		s.allocate("router")
		s.mu()
		clear(s.store)
		s.store["a-pod"] = []netip.Addr{netip.MustParseAddr("10.0.0.1")}
		s.gate = make(chan struct{})
		s.fakeNode.mu.Unlock()
		go s.ask(AllocateRequest{Owner: "router"}) //nolint:errcheck // looked at below
		synctest.Wait()
		released := make(chan error)
		go func() { released <- s.giveBack("10.0.0.1") }()
		synctest.Wait()
		s.gate <- struct{}{} // the address is not to be had any more, beside the other
		s.gate <- struct{}{} // nor alone
		s.gate <- struct{}{}
		s.wantKind(<-released, NotFound)
		s.wantAddress("router", "10.0.0.2")
	})
	play(t, "a DEL that fails is tried again until it succeeds", func(w *fakeNode) { w.ipv6 = false }, func(s scene) {
		s.allocate("router")
		s.failing(always("DEL", notStarted))
		s.wantKind(s.giveBack("10.0.0.1"), Failed, "retried", "router")
		time.Sleep(30 * time.Minute)
		if s.held() != 1 || s.List()[0].State != record.Releasing {
			s.Fatalf("held %d, %+v", s.held(), s.List())
		}
		s.failing(nil)
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if s.held() != 0 || len(s.List()) != 0 {
			s.Errorf("the plugin holds %d, the list %v", s.held(), s.List())
		}
	})
	play(t, "asking again for what is releasing tries at once", func(w *fakeNode) { w.ipv6 = false }, func(s scene) {
		s.allocate("router")
		s.failing(on("DEL", 1, notStarted))
		s.wantKind(s.giveBack("10.0.0.1"), Failed)
		if err := s.giveBack("10.0.0.1"); err != nil || s.held() != 0 {
			s.Errorf("error %v, the plugin holds %d", err, s.held())
		}
	})
	play(t, "a record that cannot be removed is tried again", func(w *fakeNode) { w.ipv6 = false }, func(s scene) {
		s.allocate("router")
		s.failing(on("remove", 1, diskBefore))
		s.wantKind(s.giveBack("10.0.0.1"), Failed, "removed")
		time.Sleep(time.Minute)
		synctest.Wait()
		if len(s.List()) != 0 || len(s.disk) != 0 {
			s.Errorf("list %v, disk %v", s.List(), s.disk)
		}
	})
	play(t, "with a release delay the address cools and is then given back", func(w *fakeNode) { w.ipv6 = false }, func(s scene) {
		s.allocate("router")
		s.said()
		if err := s.giveBack("10.0.0.1"); err != nil {
			s.Fatal(err)
		}
		s.wantSaid("write cooldown")
		if a := s.allocate("health"); a.Holds(netip.MustParseAddr("10.0.0.1")) {
			s.Error("an address in cooldown was handed out to another")
		}
		s.said()
		time.Sleep(time.Minute)
		synctest.Wait()
		s.wantSaid("write releasing, DEL, remove")
	}, func(o *Options) { o.ReleaseDelay = time.Minute })
	play(t, "a release that skips the delay gives back at once", nil, func(s scene) {
		s.allocate("router")
		s.said()
		s.skipDelay("10.0.0.1")
		s.wantSaid("write held") // the other family is still claimed
		s.skipDelay("fd00::1")
		s.wantSaid("write releasing, DEL, remove")
	}, func(o *Options) { o.ReleaseDelay = time.Minute })
	play(t, "an address in cooldown is given back at once by who skips the delay, and by nobody else", func(w *fakeNode) { w.ipv6 = false }, func(s scene) {
		s.allocate("router")
		if err := s.giveBack("10.0.0.1"); err != nil {
			s.Fatal(err)
		}
		s.said()
		s.wantKind(s.giveBack("10.0.0.1"), NotFound, "not handed out")
		s.wantSaid("")
		s.skipDelay("10.0.0.1")
		s.wantSaid("write releasing, DEL, remove")
		if _, err := s.Release(context.Background(), ReleaseRequest{IP: netip.MustParseAddr("10.0.0.1"), SkipDelay: true}); err == nil {
			s.Error("it was given back twice")
		}
	}, func(o *Options) { o.ReleaseDelay = time.Minute })
	play(t, "the last failure is remembered with whose it is, mended or not", func(w *fakeNode) { w.ipv6 = false }, func(s scene) {
		if f := s.LastFailure(); f.Text != "" || !f.At.IsZero() {
			s.Errorf("before anything failed: %+v", f)
		}
		a := s.allocate("router")
		s.failing(on("DEL", 1, refused))
		began := time.Now()
		if s.giveBack("10.0.0.1") == nil {
			s.Error("the release did not fail")
		}
		failed := s.LastFailure()
		if failed.Owner != "router" || failed.Pool != defaults.Pool || failed.ContainerID != a.ContainerID ||
			!strings.Contains(failed.Text, "could not be released") || !failed.At.Equal(began) {
			s.Errorf("%+v", failed)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if len(s.List()) != 0 || s.LastFailure() != failed {
			s.Errorf("when it is mended: %+v, list %v", s.LastFailure(), s.List())
		}
	})
	play(t, "an owner who asks while its address cools gets it back", func(w *fakeNode) { w.ipv6 = false }, func(s scene) {
		s.allocate("router")
		if err := s.giveBack("10.0.0.1"); err != nil {
			s.Fatal(err)
		}
		s.allocate("router")
		time.Sleep(time.Hour)
		synctest.Wait()
		s.wantAddress("router", "10.0.0.1")
	}, func(o *Options) { o.ReleaseDelay = time.Minute })
}

func TestExpiration(t *testing.T) {
	expiring := AllocateRequest{Owner: "default/pod", Expire: true}
	play(t, "a hand-out that nobody confirms is given back at its deadline", nil, func(s scene) {
		a, err := s.ask(expiring)
		if err != nil || a.Expiration == nil || a.Expiration.UUID == "" {
			s.Fatalf("expiration %+v, error %v", a.Expiration, err)
		}
		time.Sleep(10*time.Minute - time.Second)
		synctest.Wait()
		s.wantAddress("default/pod", "10.0.0.1")
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if s.held() != 0 || len(s.List()) != 0 || s.Counters().Expired != 1 {
			s.Errorf("the plugin holds %d, the list %v, counters %+v", s.held(), s.List(), s.Counters())
		}
	})
	play(t, "asking again renews UUID and deadline", nil, func(s scene) {
		first, _ := s.ask(expiring)
		time.Sleep(9 * time.Minute)
		second, err := s.ask(expiring)
		if err != nil || first.Expiration.UUID == second.Expiration.UUID {
			s.Fatalf("UUIDs %v and %v, error %v", first.Expiration, second.Expiration, err)
		}
		time.Sleep(9 * time.Minute)
		synctest.Wait()
		s.wantAddress("default/pod", "10.0.0.1")
	})
	confirmations := map[string]func(scene) error{
		"an allocation without the header": func(s scene) error {
			_, err := s.ask(AllocateRequest{Owner: "default/pod"})
			return err
		},
		"a restore by the owner": func(s scene) error { return s.claim("default/pod", "10.0.0.1") },
	}
	for how, confirm := range confirmations {
		play(t, how+" confirms for good", nil, func(s scene) {
			if _, err := s.ask(expiring); err != nil {
				s.Fatal(err)
			}
			if err := confirm(s); err != nil {
				s.Fatal(err)
			}
			a, err := s.ask(expiring) // a confirmed attachment never expires again
			if err != nil || a.Expiration != nil {
				s.Fatalf("expiration %+v, error %v", a.Expiration, err)
			}
			time.Sleep(time.Hour)
			synctest.Wait()
			s.wantAddress("default/pod", "10.0.0.1")
		})
	}
	play(t, "reacquiring does not confirm", nil, func(s scene) {
		if _, err := s.ask(expiring); err != nil {
			s.Fatal(err)
		}
		s.wipe()
		s.kill(s.T, s.Engine)
		e := s.start(s.T)
		synctest.Wait()
		a, ok := e.Lookup(defaults.Pool, "default/pod")
		if !ok || a.Expiration == nil || a.Lost {
			s.Errorf("after reacquiring: %+v", a)
		}
	})
	play(t, "the deadline outlives a restart", nil, func(s scene) {
		if _, err := s.ask(expiring); err != nil {
			s.Fatal(err)
		}
		s.kill(s.T, s.Engine)
		time.Sleep(time.Hour)
		e := s.start(s.T)
		synctest.Wait()
		if len(e.List()) != 0 || s.held() != 0 {
			s.Errorf("list %v, the plugin holds %d", e.List(), s.held())
		}
	})
}
