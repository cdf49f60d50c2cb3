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

	"github.com/delegated-ipam/delegated-ipam/pkg/containerid"
	"github.com/delegated-ipam/delegated-ipam/pkg/defaults"
	"github.com/delegated-ipam/delegated-ipam/pkg/delegate/call"
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
	world *fakeNode // for its calls
	held  map[claimed]netip.Addr
	// unknown are owners of whom a failure was answered since: they may hold
	// nothing, or what they held.
	unknown map[string]bool
	// storeLost: the plugin lost its store, so addresses may have changed.
	storeLost bool
	// forgotten are owners that have not asked since the journal was lost.
	forgotten map[string]bool
}

// TestNothingLeaksAndNothingIsHandedOutTwice runs random requests, faults,
// kills, restarts and reboots, and after each life compares what clients were
// told with the journal and the plugin's store.
func TestNothingLeaksAndNothingIsHandedOutTwice(t *testing.T) {
	for _, p := range []profile.Profile{hostLocal(), known("unknown"), known("calico-ipam"), known("azure-ipam"), known("dhcp"), lateDel(), sameAnswer()} {
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
	p.Type, p.RepeatedAdd, p.VerifyBy, p.Del = "late-del", profile.RepeatedAddSameAnswer, profile.VerifyAdd, profile.DelQueued
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
	w.blind = rapid.Bool().Draw(rt, "the store cannot be looked up")
	delay := rapid.SampledFrom([]time.Duration{0, time.Minute}).Draw(rt, "release delay")
	interval := rapid.SampledFrom([]time.Duration{0, time.Hour}).Draw(rt, "verify interval")
	boot := 1
	h := &history{world: w, held: map[claimed]netip.Addr{}, unknown: map[string]bool{}, forgotten: map[string]bool{}}
	var e *Engine
	older := map[string][]netip.Addr{} // what the plugin's store was once
	begin := func() {
		w.note("boot", boot)
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
			expire := rapid.IntRange(0, 3).Draw(rt, "expire") == 0
			a, err := e.Allocate(context.Background(), AllocateRequest{Owner: owner, Family: f, Expire: expire})
			w.note("allocate", owner, f, a.Addrs(), a.Claims, err)
			h.allocated(rt, owner, f, a, err)
		},
		"restore": func(rt *rapid.T) {
			owner := rapid.SampledFrom(owners).Draw(rt, "owner")
			ip := netip.AddrFrom4([4]byte{10, 0, 0, byte(rapid.IntRange(1, 8).Draw(rt, "ip"))})
			_, err := e.Restore(context.Background(), RestoreRequest{Owner: owner, IP: ip})
			w.note("restore", owner, ip, err)
			h.restored(rt, owner, ip, err)
			if a, ok := e.Lookup(defaults.Pool, owner); ok && h.storeLost && !a.Claimed(record.IPv6) {
				// What was lost with the store was acquired anew for this address,
				// and the other family has changed: the answers stay true.
				delete(h.held, claimed{owner, record.IPv6})
			}
		},
		"release": func(rt *rapid.T) {
			ip := netip.AddrFrom4([4]byte{10, 0, 0, byte(rapid.IntRange(1, 8).Draw(rt, "ip"))})
			if rapid.Bool().Draw(rt, "v6") {
				ip = netip.AddrFrom16([16]byte{0: 0xfd, 15: byte(rapid.IntRange(1, 8).Draw(rt, "ip"))})
			}
			_, err := e.Release(context.Background(), ReleaseRequest{IP: ip})
			w.note("release", ip, err)
			h.released(ip, err)
		},
		"fault": func(rt *rapid.T) {
			steps := []string{"write adding", "write held", "write releasing", "write cooldown", "write tombstone", "remove", "ADD", "DEL", "CHECK"}
			step := rapid.SampledFrom(steps).Draw(rt, "step")
			faults := []fault{refused, notStarted, hungBefore, hungAfter, errorAfter}
			if step == "ADD" && p.AddOutlivesSeconds > 100 || step == "DEL" && p.DelOutlivesSeconds > 100 {
				faults = append(faults, hungLate)
			}
			if step == "DEL" && p.SingleUseIDs() {
				faults = append(faults, queued)
			}
			if strings.HasPrefix(step, "write") || step == "remove" {
				faults = []fault{diskBefore, diskAfter}
			}
			f := on(step, rapid.IntRange(1, 3).Draw(rt, "nth"), rapid.SampledFrom(append(faults, dieBefore, dieAfter)).Draw(rt, "fault"))
			w.mu.Lock()
			w.fault = f
			w.mu.Unlock()
		},
		"the network is renamed": func(rt *rapid.T) {
			w.mu.Lock()
			defer w.mu.Unlock()
			if len(h.forgotten) == 0 { // an ID of another network would not be found again
				w.network[defaults.Pool] = rapid.SampledFrom([]string{"net", "net2"}).Draw(rt, "name")
			}
		},
		"a pod asks the plugin": func(rt *rapid.T) {
			w.mu.Lock()
			defer w.mu.Unlock()
			pod := rapid.SampledFrom([]string{"pod-1", "pod-2"}).Draw(rt, "pod")
			if _, ok := w.store[pod]; ok {
				delete(w.store, pod)
				return
			}
			got, err := w.allocate(call.Call{ContainerID: pod})
			w.calls = append(w.calls, fmt.Sprint("-- ", pod, got, err))
		},
		"the journal is lost": func(rt *rapid.T) {
			if p.Type != "host-local" {
				return // what others lose then is known: docs/how-it-works.md, Known limits
			}
			w.kill(t, e)
			w.mu.Lock()
			w.calls = append(w.calls, "-- the journal is lost")
			w.loseJournal(owners)
			for _, owner := range owners {
				h.forgotten[owner] = true
				_, there := w.store[containerid.ContainerID(owner, "node1", w.network[defaults.Pool])]
				// Without a lookup, or if it was held in an earlier network, the address may change.
				h.unknown[owner] = h.unknown[owner] || w.blind || !there
			}
			w.mu.Unlock()
			begin()
		},
		"the clock was ahead": func(*rapid.T) {
			w.kill(t, e)
			w.mu.Lock()
			w.aheadBy(365 * 24 * time.Hour)
			w.mu.Unlock()
			begin()
		},
		"the plugin's store is backed up": func(*rapid.T) {
			w.mu.Lock()
			defer w.mu.Unlock()
			older = maps.Clone(w.store)
		},
		"time passes": func(*rapid.T) { time.Sleep(2 * time.Minute) },
		"restart":     func(*rapid.T) { stop(t, e); begin() },
		"killed":      func(*rapid.T) { w.kill(t, e); begin() },
		"reboot": func(rt *rapid.T) {
			w.kill(t, e)
			boot++
			store := rapid.SampledFrom([]string{"survived", "is empty", "is older"}).Draw(rt, "the plugin's store")
			w.mu.Lock()
			w.boots++
			switch store {
			case "is empty":
				w.store, h.storeLost = map[string][]netip.Addr{}, true
			case "is older":
				w.store, h.storeLost = w.stillOurs(older), true
			}
			w.mu.Unlock()
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
			h.noPodHasOurs(rt, e)
		},
	})

	// Let recovery settle without faults, then compare.
	w.mu.Lock()
	w.fault = nil
	if h.storeLost { // a pod may have got what was lost, and would stand in the way of reacquiring
		delete(w.store, "pod-1")
		delete(w.store, "pod-2")
	}
	w.mu.Unlock()
	stop(t, e)
	begin()
	time.Sleep(24 * time.Hour)
	synctest.Wait()
	for owner := range h.forgotten { // what it holds is known again only when it asks
		a, err := e.Allocate(context.Background(), AllocateRequest{Owner: owner})
		h.allocated(rt, owner, "", a, err)
	}
	synctest.Wait()
	h.settled(rt, w, e, p)
	nothingIsLeft(rt, w, e)
}

// loseJournal removes every record. What an earlier network's ID holds cannot be found
// again: it is removed as an operator would.
func (w *fakeNode) loseJournal(owners []string) {
	w.disk = map[string]record.Record{}
	for id := range w.store {
		ours := func(owner string) bool {
			return id == containerid.ContainerID(owner, "node1", w.network[defaults.Pool])
		}
		if !strings.HasPrefix(id, "pod-") && !slices.ContainsFunc(owners, ours) {
			delete(w.store, id)
		}
	}
}

// aheadBy makes every record as a clock that was ahead would have written it.
func (w *fakeNode) aheadBy(d time.Duration) {
	for id, r := range w.disk {
		r = r.Clone()
		r.Changed = r.Changed.Add(d)
		if !r.ReleaseAt.IsZero() {
			r.ReleaseAt = r.ReleaseAt.Add(d)
		}
		if r.Expiration != nil {
			r.Expiration.Deadline = r.Expiration.Deadline.Add(d)
		}
		if !r.LateDel.Until.IsZero() {
			r.LateDel.Until = r.LateDel.Until.Add(d)
		}
		for i := range r.Invocations {
			if c := &r.Invocations[i]; !c.AddActsUntil.IsZero() {
				c.AddActsUntil = c.AddActsUntil.Add(d)
			}
		}
		w.disk[id] = r
	}
}

// noPodHasOurs fails if the plugin gave a pod what an owner holds, unless the plugin
// itself lost its store.
func (h *history) noPodHasOurs(rt *rapid.T, e *Engine) {
	if h.storeLost {
		return
	}
	h.world.mu.Lock()
	pods := slices.Concat(h.world.store["pod-1"], h.world.store["pod-2"])
	h.world.mu.Unlock()
	for _, a := range e.List() {
		if a.State != record.Held {
			continue
		}
		for _, ip := range a.Addrs() {
			if slices.Contains(pods, ip) {
				rt.Fatalf("%s is held by %s, and a pod has it\n%s", ip, a.Owner, strings.Join(h.world.calls, "\n"))
			}
		}
	}
}

// stillOurs leaves out what was released since: no journal can know that a backup
// has brought it back (docs/how-it-works.md, Known limits).
func (w *fakeNode) stillOurs(store map[string][]netip.Addr) map[string][]netip.Addr {
	ours := map[string][]netip.Addr{}
	for _, r := range w.disk {
		for _, c := range r.Invocations {
			if held, ok := store[c.ContainerID]; ok {
				ours[c.ContainerID] = held
			}
		}
	}
	return ours
}

// nothingIsLeft releases everything: whatever an attachment got at any time in
// its life must then be free, also what a plugin gave it twice.
func nothingIsLeft(rt *rapid.T, w *fakeNode, e *Engine) {
	for _, a := range e.List() {
		for _, f := range a.Claims {
			addr, _ := a.Address(f)
			if _, err := e.Release(context.Background(), ReleaseRequest{IP: addr.Addr()}); err != nil {
				rt.Errorf("release %s of %s: %v", addr.Addr(), a.Owner, err)
			}
		}
	}
	time.Sleep(24 * time.Hour)
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.store, "pod-1")
	delete(w.store, "pod-2")
	if len(e.List()) != 0 || len(w.store) != 0 || len(w.disk) != 0 {
		rt.Errorf("after everything was released the list is %+v, the journal %+v, and the plugin holds %v", e.List(), w.disk, w.store)
	}
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
			rt.Fatalf("%s had %s and now gets %s, although nothing went wrong\n%s", owner, before, addr.Addr(), strings.Join(h.world.calls, "\n"))
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
	delete(h.forgotten, owner)
	if a.Expiration != nil {
		h.unknown[owner] = true // it may be gone at any time from its deadline on
	}
}

func (h *history) restored(rt *rapid.T, owner string, ip netip.Addr, err error) {
	if err != nil {
		h.failed(owner, err)
		return
	}
	for k, other := range h.held {
		if other == ip && k.owner != owner && !h.unknown[k.owner] && !(h.storeLost && h.forgotten[k.owner]) {
			rt.Fatalf("%s was restored for %s, but %s has it", ip, owner, k.owner)
		}
	}
	h.held[claimed{owner, record.IPv4}] = ip
	if h.unknown[owner] || h.forgotten[owner] { // held perhaps, and not claimed before it is asked for
		delete(h.held, claimed{owner, record.IPv6})
	}
	delete(h.unknown, owner)
	delete(h.forgotten, owner)
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
		if a.State == record.Releasing {
			continue // its DEL may have worked, and the address be another's by now
		}
		for _, addr := range a.Result.Addresses {
			if other, ok := seen[addr.Addr()]; ok {
				rt.Fatalf("%s belongs to %s and to %s", addr.Addr(), other, a.Owner)
			}
			seen[addr.Addr()] = a.Owner
		}
	}
}

// settled checks the invariants when nothing is under way any more.
func (h *history) settled(rt *rapid.T, w *fakeNode, e *Engine, p profile.Profile) {
	noDoubles(rt, e)
	if !e.processes.TryAcquire(int64(e.opts.MaxProcesses)) {
		rt.Errorf("a slot for a plugin process is still taken")
	} else {
		e.processes.Release(int64(e.opts.MaxProcesses))
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.standing != 0 {
		rt.Errorf("%d times what was expected was not taken back", w.standing)
	}
	journal := map[string][]netip.Addr{}
	for _, r := range w.disk {
		switch r.State {
		case record.Held:
			journal[r.Invocations[len(r.Invocations)-1].ContainerID] = addrs(r.Result.Addresses)
		case record.Tombstone:
		case record.Adding:
			if len(r.Claims) == 0 {
				rt.Errorf("record of %s is still %s although nothing of it was handed out", r.Owner, r.State)
			}
		default:
			rt.Errorf("record of %s is still %s", r.Owner, r.State)
		}
	}
	for id, held := range w.store {
		if _, ok := journal[id]; !ok && !strings.HasPrefix(id, "pod-") {
			rt.Errorf("leak: the plugin holds %v under %s; the journal knows nothing of it", held, id)
		}
	}
	view := map[string]Attachment{}
	for _, a := range e.List() {
		view[a.Owner] = a
	}
	for k, ip := range h.held {
		if h.unknown[k.owner] || h.forgotten[k.owner] {
			continue
		}
		a, ok := view[k.owner]
		if !ok || !a.Holds(ip) || !a.Claimed(k.family) {
			rt.Errorf("acknowledged and lost: %s has %s of %s; the journal says %+v", k.owner, ip, k.family, a.Record)
			continue
		}
		blind := p.VerifyBy == profile.VerifyNothing && h.storeLost // it cannot be asked
		if _, ok := w.store[lastID(a.Record)]; !ok && !a.Lost && !blind {
			rt.Errorf("%s is thought to have %s, but the plugin's store is %v", k.owner, ip, slices.Collect(maps.Keys(w.store)))
		}
		if !blind && canRequest(lastContextOf(a.Record), claimedOf(a.Record)) && a.State != record.Held {
			rt.Errorf("%s was not reacquired to %s: %s", k.owner, ip, a.LastError)
		}
	}
}

func lastContextOf(r record.Record) call.Invocation { return r.Invocations[len(r.Invocations)-1] }

func claimedOf(r record.Record) []netip.Addr {
	return slices.DeleteFunc(r.Addrs(), func(ip netip.Addr) bool { return !r.Claimed(record.FamilyOf(ip)) })
}

func lastID(r record.Record) string {
	if len(r.Invocations) == 0 {
		return ""
	}
	return r.Invocations[len(r.Invocations)-1].ContainerID
}
