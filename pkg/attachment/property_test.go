package attachment

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/delegated-ipam/delegated-ipam/pkg/delegate/profile"
	"github.com/delegated-ipam/delegated-ipam/pkg/journal/record"
)

// claimed is one address that a client was told it has.
type claimed struct {
	owner  string
	family record.Family
}

// history is the small reference model: what clients were told.
type history struct {
	held map[claimed]netip.Addr
	// unknown are owners of whom a failure was answered since: they may hold
	// nothing, or what they held.
	unknown map[string]bool
	// everLost: the plugin lost its store, so addresses may have changed.
	storeLost bool
}

// TestNothingLeaksAndNothingIsHandedOutTwice runs random requests, faults,
// kills, restarts and reboots, and after each life compares what clients were
// told with the journal and the plugin's store.
func TestNothingLeaksAndNothingIsHandedOutTwice(t *testing.T) {
	for _, p := range []profile.Profile{hostLocal(), known("unknown"), lateDel(), sameAnswer()} {
		t.Run("with the profile of "+p.Type, func(t *testing.T) {
			rapid.Check(t, func(rt *rapid.T) {
				var failure any // rapid stops a run by a panic, which must not end the bubble
				synctest.Test(t, func(t *testing.T) {
					defer func() { failure = recover() }()
					life(t, rt, p)
				})
				if failure != nil {
					panic(failure)
				}
			})
		})
	}
}

func lateDel() profile.Profile {
	p := known("unknown")
	p.Type, p.RepeatedAdd, p.VerifyBy, p.LateDel = "late-del", profile.RepeatedAddSameAnswer, profile.VerifyAdd, true
	return p
}

func sameAnswer() profile.Profile {
	p := hostLocal()
	p.Type, p.RepeatedAdd = "same-answer", profile.RepeatedAddSameAnswer
	return p
}

func life(t *testing.T, rt *rapid.T, p profile.Profile) {
	w := newWorld()
	w.profile, w.ipv6, w.size = p, rapid.Bool().Draw(rt, "dual stack"), 8
	delay := rapid.SampledFrom([]time.Duration{0, time.Minute}).Draw(rt, "release delay")
	interval := rapid.SampledFrom([]time.Duration{0, time.Hour}).Draw(rt, "verify interval")
	boot := 1
	h := &history{held: map[claimed]netip.Addr{}, unknown: map[string]bool{}}
	var e *Engine
	begin := func() {
		e = w.start(t, func(o *Options) {
			o.ReleaseDelay, o.VerifyInterval, o.BootID = delay, interval, fmt.Sprint("boot", boot)
		})
	}
	begin()
	defer func() { stop(t, e) }()
	owners := []string{"router", "health", "ingress", "default/a", "default/b"}

	rt.Repeat(map[string]func(*rapid.T){
		"allocate": func(rt *rapid.T) {
			owner := rapid.SampledFrom(owners).Draw(rt, "owner")
			f := rapid.SampledFrom([]record.Family{"", record.IPv4, record.IPv6}).Draw(rt, "family")
			a, err := e.Allocate(context.Background(), AllocateRequest{Owner: owner, Family: f})
			h.allocated(rt, owner, f, a, err)
		},
		"restore": func(rt *rapid.T) {
			owner := rapid.SampledFrom(owners).Draw(rt, "owner")
			ip := netip.AddrFrom4([4]byte{10, 0, 0, byte(rapid.IntRange(1, 8).Draw(rt, "ip"))})
			_, err := e.Restore(context.Background(), RestoreRequest{Owner: owner, IP: ip})
			h.restored(rt, owner, ip, err)
		},
		"release": func(rt *rapid.T) {
			ip := netip.AddrFrom4([4]byte{10, 0, 0, byte(rapid.IntRange(1, 8).Draw(rt, "ip"))})
			if rapid.Bool().Draw(rt, "v6") {
				ip = netip.AddrFrom16([16]byte{0: 0xfd, 15: byte(rapid.IntRange(1, 8).Draw(rt, "ip"))})
			}
			_, err := e.Release(context.Background(), ReleaseRequest{IP: ip})
			h.released(ip, err)
		},
		"fault": func(rt *rapid.T) {
			steps := []string{"write adding", "write held", "write releasing", "write cooling", "write spent", "remove", "ADD", "DEL", "CHECK"}
			step := rapid.SampledFrom(steps).Draw(rt, "step")
			faults := []fault{refused, notStarted, hungBefore, hungAfter, errorAfter}
			if strings.HasPrefix(step, "write") || step == "remove" {
				faults = []fault{diskBefore, diskAfter}
			}
			f := on(step, rapid.IntRange(1, 3).Draw(rt, "nth"), rapid.SampledFrom(append(faults, dieBefore, dieAfter)).Draw(rt, "fault"))
			w.mu.Lock()
			w.fault = f
			w.mu.Unlock()
		},
		"time passes": func(*rapid.T) { time.Sleep(2 * time.Minute) },
		"restart":     func(*rapid.T) { stop(t, e); begin() },
		"killed":      func(*rapid.T) { w.kill(t, e); begin() },
		"reboot": func(rt *rapid.T) {
			w.kill(t, e)
			boot++
			if rapid.Bool().Draw(rt, "the plugin's store is lost") {
				w.mu.Lock()
				w.store = map[string][]netip.Addr{}
				w.mu.Unlock()
				h.storeLost = true
			}
			begin()
		},
		"": func(rt *rapid.T) {
			w.mu.Lock()
			dead := w.dead
			w.mu.Unlock()
			if dead {
				w.kill(t, e)
				begin()
			}
			noDoubles(rt, e)
		},
	})

	// Let recovery settle without faults, then compare.
	w.mu.Lock()
	w.fault = nil
	w.mu.Unlock()
	stop(t, e)
	begin()
	time.Sleep(24 * time.Hour)
	synctest.Wait()
	h.settled(rt, w, e, p)
}

func (h *history) allocated(rt *rapid.T, owner string, f record.Family, a Attachment, err error) {
	if err != nil {
		h.failed(owner, err)
		return
	}
	for _, family := range a.Claims {
		addr, _ := a.Address(family)
		if f != "" && f != family {
			continue
		}
		before, ok := h.held[claimed{owner, family}]
		if ok && before != addr.Addr() && !h.storeLost && !h.unknown[owner] {
			rt.Fatalf("%s had %s and now gets %s, although nothing went wrong", owner, before, addr.Addr())
		}
		h.held[claimed{owner, family}] = addr.Addr()
	}
	if f != "" && !a.Claimed(f) {
		rt.Fatalf("%s asked for %s and got claims %v", owner, f, a.Claims)
	}
	// A family whose address changed is not claimed any more: the answers stay true.
	for k, ip := range h.held {
		if k.owner == owner && (!a.Claimed(k.family) || !a.Holds(ip)) {
			delete(h.held, k)
		}
	}
	delete(h.unknown, owner)
}

func (h *history) restored(rt *rapid.T, owner string, ip netip.Addr, err error) {
	if err != nil {
		h.failed(owner, err)
		return
	}
	for k, other := range h.held {
		if other == ip && k.owner != owner && !h.unknown[k.owner] {
			rt.Fatalf("%s was restored for %s, but %s has it", ip, owner, k.owner)
		}
	}
	h.held[claimed{owner, record.IPv4}] = ip
	if h.unknown[owner] {
		delete(h.held, claimed{owner, record.IPv6})
	}
	delete(h.unknown, owner)
}

func (h *history) failed(owner string, err error) {
	var known *Error
	if errors.As(err, &known) && (known.Kind == Exists || known.Kind == Forbidden) {
		return
	}
	h.unknown[owner] = true
}

func (h *history) released(ip netip.Addr, err error) {
	var known *Error
	for k, held := range h.held {
		if held != ip {
			continue
		}
		switch {
		case err == nil:
			delete(h.held, k)
		case errors.As(err, &known) && known.Kind == NotFound:
		default:
			h.unknown[k.owner] = true // it may be gone, with its other family
		}
	}
}

func noDoubles(rt *rapid.T, e *Engine) {
	seen := map[netip.Addr]string{}
	for _, a := range e.List() {
		for _, addr := range a.Result.Addresses {
			if other, ok := seen[addr.Addr()]; ok {
				rt.Fatalf("%s belongs to %s and to %s", addr.Addr(), other, a.Owner)
			}
			seen[addr.Addr()] = a.Owner
		}
	}
}

// settled checks the invariants when nothing is under way any more.
func (h *history) settled(rt *rapid.T, w *world, e *Engine, p profile.Profile) {
	noDoubles(rt, e)
	w.mu.Lock()
	defer w.mu.Unlock()
	journal := map[string][]netip.Addr{}
	for _, r := range w.disk {
		switch r.State {
		case record.Held:
			journal[r.Contexts[len(r.Contexts)-1].ContainerID] = addrs(r.Result.Addresses)
		case record.Spent:
		case record.Adding:
			if len(r.Claims) == 0 {
				rt.Errorf("record of %s is still %s although nothing of it was handed out", r.Owner, r.State)
			}
		default:
			rt.Errorf("record of %s is still %s", r.Owner, r.State)
		}
	}
	for id, held := range w.store {
		if !slices.Equal(held, journal[id]) {
			rt.Errorf("leak: the plugin holds %v under %s; the journal %v", held, id, journal[id])
		}
	}
	view := map[string]Attachment{}
	for _, a := range e.List() {
		view[a.Owner] = a
	}
	for k, ip := range h.held {
		if h.unknown[k.owner] {
			continue
		}
		a, ok := view[k.owner]
		if !ok || !a.Holds(ip) || !a.Claimed(k.family) {
			rt.Errorf("acknowledged and lost: %s has %s of %s; the journal says %+v", k.owner, ip, k.family, a.Record)
			continue
		}
		if _, ok := w.store[lastID(a.Record)]; !ok && !a.Lost {
			rt.Errorf("%s is thought to have %s, but the plugin's store is %v", k.owner, ip, slices.Collect(maps.Keys(w.store)))
		}
		if p.HonoursRequest() && a.State != record.Held {
			rt.Errorf("%s was not healed to %s: %s", k.owner, ip, a.LastError)
		}
	}
}

func lastID(r record.Record) string {
	if len(r.Contexts) == 0 {
		return ""
	}
	return r.Contexts[len(r.Contexts)-1].ContainerID
}
