package planner

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
)

// scene builds a view slot by slot: address i of slot i, one family.
type scene struct{ View }

func ip(n int) netip.Addr { return netip.AddrFrom4([4]byte{10, 0, 0, byte(n + 1)}) }

func newScene() scene {
	return scene{View{
		Pool: map[netip.Addr]Entry{}, Used: map[netip.Addr]Entry{}, Handshakes: map[netip.Addr]Handshake{},
		Drained: map[netip.Addr]bool{}, Refused: map[netip.Addr]bool{},
	}}
}

func (s *scene) held(numbers ...int) {
	for _, n := range numbers {
		s.Slots = append(s.Slots, Slot{Number: n, Addresses: []netip.Addr{ip(n)}, Held: true})
	}
}

func (s *scene) published(numbers ...int) {
	for _, n := range numbers {
		s.Pool[ip(n)] = EntryOf(n, false)
	}
}

func (s *scene) used(numbers ...int) {
	for _, n := range numbers {
		s.Used[ip(n)] = EntryOf(n, false)
	}
}

// served is a node at rest: slots 0 to n-1 held and published, the first used ones in use.
func (s *scene) served(n, used int) {
	for i := range n {
		s.held(i)
		s.published(i)
	}
	for i := range used {
		s.used(i)
	}
}

func small() Settings { return Settings{MinAllocate: 4, PreAllocate: 2, ReleaseExcess: true} }

func TestNext(t *testing.T) {
	for name, c := range map[string]struct {
		view     func(*scene)
		settings func(*Settings)
		want     []string
	}{
		"nothing is done where all views agree": {view: func(s *scene) { s.served(6, 4) }},
		"a new node acquires enough for the agent itself and some more, lowest number first": {
			want: []string{"acquire slot 0", "acquire slot 1", "acquire slot 2", "acquire slot 3", "acquire slot 4"},
		},
		"nothing is published before there is enough": {
			view: func(s *scene) { s.held(0, 1, 2) }, want: []string{"acquire slot 3", "acquire slot 4"},
		},
		"when there is enough it is published": {
			view: func(s *scene) { s.held(0, 1, 2, 3, 4) },
			want: []string{
				"publish [10.0.0.1] of slot 0", "publish [10.0.0.2] of slot 1", "publish [10.0.0.3] of slot 2",
				"publish [10.0.0.4] of slot 3", "publish [10.0.0.5] of slot 4",
			},
		},
		"with no more to be had, what the agent itself needs is published": {
			view: func(s *scene) { s.held(0, 1, 2); s.Exhausted = true },
			want: []string{"publish [10.0.0.1] of slot 0", "publish [10.0.0.2] of slot 1", "publish [10.0.0.3] of slot 2"},
		},
		"with less than that nothing is published: the agent would end": {
			view: func(s *scene) { s.held(0, 1); s.Exhausted = true },
		},
		"used and pre-allocate decide how many there are": {
			view: func(s *scene) { s.served(6, 5) }, want: []string{"acquire slot 6"},
		},
		"max-allocate is a limit": {
			view: func(s *scene) { s.served(6, 5) }, settings: func(s *Settings) { s.MaxAllocate = 6 },
		},
		"a number that the pool still names is not acquired": {
			view: func(s *scene) {
				s.served(6, 5)
				s.published(6)
				s.used(6)
				s.Refused[ip(6)] = true
			},
			want: []string{"report AddressNotHeld [10.0.0.7]", "acquire slot 7"},
		},
		"what is used and not published is published at once": {
			view: func(s *scene) { s.served(6, 4); delete(s.Pool, ip(1)) }, want: []string{"publish [10.0.0.2] of slot 1"},
		},
		"also out of a handshake": {
			view: func(s *scene) { s.served(6, 4); delete(s.Pool, ip(1)); s.Handshakes[ip(1)] = Ready },
			want: []string{"publish [10.0.0.2] of slot 1", "unmark [10.0.0.2] of slot 1"},
		},
		"what is used and not held is got back before it is published": {
			view: func(s *scene) { s.served(6, 4); s.used(9) }, want: []string{"restore [10.0.0.10] of slot 9"},
		},
		"what is published and not held is got back": {
			view: func(s *scene) { s.served(6, 4); s.published(9) }, want: []string{"restore [10.0.0.10] of slot 9"},
		},
		"if it cannot be, and is used, it stays": {
			view: func(s *scene) { s.served(6, 4); s.published(9); s.used(9); s.Refused[ip(9)] = true },
			want: []string{"report AddressNotHeld [10.0.0.10]"},
		},
		"if it cannot be, and is not used, it is on its way out": {
			view: func(s *scene) { s.served(6, 4); s.published(9); s.Refused[ip(9)] = true },
			want: []string{"cordon [10.0.0.10] of slot 9"},
		},
		"an entry of somebody else is left alone": {
			view: func(s *scene) { s.served(6, 4); s.Pool[ip(9)] = Entry{Owner: "vip"} },
			want: []string{"report ForeignPoolEntry [10.0.0.10]"},
		},
		"an entry for what is held is ours, whoever wrote it": {
			view: func(s *scene) { s.served(6, 4); s.Pool[ip(5)] = Entry{} }, want: []string{"publish [10.0.0.6] of slot 5"},
		},
		"a slot whose address changed has the new one published beside the one in use": {
			view: func(s *scene) {
				s.served(6, 4)
				s.Slots[0].Addresses = []netip.Addr{ip(20)}
				s.Refused[ip(0)] = true
			},
			want: []string{"report AddressNotHeld [10.0.0.1]", "publish [10.0.0.21] of slot 0"},
		},
		"the highest slot that is not used is fenced first": {
			view: func(s *scene) { s.served(8, 4) }, want: []string{"cordon [10.0.0.8] of slot 7"},
		},
		"max-above-watermark lets more be free": {
			view: func(s *scene) { s.served(8, 4) }, settings: func(s *Settings) { s.MaxAboveWatermark = 2 },
		},
		"nothing goes back where it must not": {
			view: func(s *scene) { s.served(8, 4) }, settings: func(s *Settings) { s.ReleaseExcess = false },
		},
		"what is fenced has the agent probed": {
			view: func(s *scene) { s.served(8, 4); s.Pool[ip(7)] = EntryOf(7, true) }, want: []string{"mark-for-release [0.0.0.0] of slot 7"},
		},
		"an answer of before the fence is none": {
			view: func(s *scene) { s.served(8, 4); s.Handshakes[Probe] = DoNotRelease },
			want: []string{"unmark [0.0.0.0] of slot 0"},
		},
		"and then it rests": {
			view: func(s *scene) { s.served(8, 4); s.Pool[ip(7)] = EntryOf(7, true); s.Handshakes[Probe] = DoNotRelease },
		},
		"while the agent has not answered, rest counts for nothing": {
			view: func(s *scene) {
				s.served(8, 4)
				s.Pool[ip(7)], s.Handshakes[Probe], s.Drained[ip(7)] = EntryOf(7, true), Marked, true
			},
		},
		"a slot that is fenced in one family only is fenced in both, and probed again": {
			view: func(s *scene) {
				s.served(8, 4)
				v6 := netip.MustParseAddr("fd00::8")
				s.Slots[7].Addresses = append(s.Slots[7].Addresses, v6)
				s.Pool[ip(7)], s.Pool[v6], s.Handshakes[Probe] = EntryOf(7, true), EntryOf(7, false), DoNotRelease
			},
			want: []string{"unmark [0.0.0.0] of slot 7", "cordon [fd00::8] of slot 7"},
		},
		"what is fenced and turns out to be used is an address as any other": {
			view: func(s *scene) { s.served(8, 4); s.Pool[ip(7)] = EntryOf(7, true); s.used(7) },
			want: []string{"publish [10.0.0.8] of slot 7"},
		},
		"what has rested is marked": {
			view: func(s *scene) {
				s.served(8, 4)
				s.Pool[ip(7)], s.Handshakes[Probe], s.Drained[ip(7)] = EntryOf(7, true), DoNotRelease, true
			},
			want: []string{"mark-for-release [10.0.0.8] of slot 7", "unmark [0.0.0.0] of slot 7"},
		},
		"what is marked waits for the agent": {
			view: func(s *scene) { s.served(8, 4); s.Pool[ip(7)], s.Handshakes[ip(7)] = EntryOf(7, true), Marked },
		},
		"what the agent lets go of is withdrawn, then freed, then finished": {
			view: func(s *scene) { s.served(8, 4); s.Pool[ip(7)], s.Handshakes[ip(7)] = EntryOf(7, true), Ready },
			want: []string{"withdraw [10.0.0.8] of slot 7", "release [10.0.0.8] of slot 7", "mark-released [10.0.0.8] of slot 7"},
		},
		"what the agent does not let go of is an address as any other": {
			view: func(s *scene) { s.served(8, 4); s.Pool[ip(7)], s.Handshakes[ip(7)] = EntryOf(7, true), DoNotRelease },
			want: []string{"publish [10.0.0.8] of slot 7", "unmark [10.0.0.8] of slot 7"},
		},
		"what is needed again comes back before anything is acquired": {
			view: func(s *scene) { s.served(7, 5); s.Pool[ip(6)], s.Handshakes[ip(6)] = EntryOf(6, true), Ready },
			want: []string{"publish [10.0.0.7] of slot 6", "unmark [10.0.0.7] of slot 6"},
		},
		"what has been withdrawn is given back although one is needed": {
			view: func(s *scene) { s.served(6, 5); s.held(6); s.Handshakes[ip(6)] = Ready },
			want: []string{"release [10.0.0.7] of slot 6", "mark-released [10.0.0.7] of slot 6", "acquire slot 7"},
		},
		"what is not held and not let go of stays fenced: nobody else may get it": {
			view: func(s *scene) {
				s.served(6, 4)
				s.Pool[ip(9)], s.Handshakes[ip(9)], s.Refused[ip(9)] = EntryOf(9, true), DoNotRelease, true
			},
			want: []string{"unmark [10.0.0.10] of slot 9"},
		},
		"released of what is in the pool is nobody's word": {
			view: func(s *scene) { s.served(6, 4); s.Handshakes[ip(5)] = Released },
			want: []string{"unmark [10.0.0.6] of slot 5"},
		},
		"what is not held and let go of is withdrawn, and there is nothing to free": {
			view: func(s *scene) { s.served(6, 4); s.Pool[ip(9)], s.Handshakes[ip(9)] = EntryOf(9, true), Ready },
			want: []string{"withdraw [10.0.0.10] of slot 9", "mark-released [10.0.0.10] of slot 9"},
		},
		"but got back if it is used all the same": {
			view: func(s *scene) {
				s.served(6, 4)
				s.Pool[ip(9)], s.Handshakes[ip(9)] = EntryOf(9, true), Ready
				s.used(9)
			},
			want: []string{"restore [10.0.0.10] of slot 9"},
		},
		"a number that the sidecar still knows is not acquired": {
			view: func(s *scene) {
				s.served(6, 5)
				s.Slots = append(s.Slots, Slot{Number: 6, Addresses: []netip.Addr{ip(6)}})
				s.Refused[ip(6)] = true
			},
			want: []string{"release [10.0.0.7] of slot 6", "acquire slot 7"},
		},
		"killed after it withdrew, it frees and finishes": {
			view: func(s *scene) { s.served(6, 4); s.held(6); s.Handshakes[ip(6)] = Ready },
			want: []string{"release [10.0.0.7] of slot 6", "mark-released [10.0.0.7] of slot 6"},
		},
		"killed after it freed, it finishes": {
			view: func(s *scene) { s.served(6, 4); s.Handshakes[ip(6)] = Ready }, want: []string{"mark-released [10.0.0.7] of slot 0"},
		},
		"what is finished is the agent's to forget, and not published before": {
			view: func(s *scene) { s.served(6, 4); s.held(6); s.Handshakes[ip(6)] = Released },
		},
		"a slot that the sidecar has lost is got back: the agent may have it without saying so": {
			view: func(s *scene) {
				s.served(6, 4)
				s.Slots = append(s.Slots, Slot{Number: 6, Addresses: []netip.Addr{ip(6)}})
			},
			want: []string{"restore [10.0.0.7] of slot 6"},
		},
		"if it cannot be, and nobody knows of it, it goes": {
			view: func(s *scene) {
				s.Refused[ip(6)] = true
				s.served(6, 4)
				s.Slots = append(s.Slots, Slot{Number: 6, Addresses: []netip.Addr{ip(6)}})
			},
			want: []string{"release [10.0.0.7] of slot 6"},
		},
		"of two families a slot goes back when both are let go": {
			view: func(s *scene) {
				s.served(8, 4)
				v6 := netip.MustParseAddr("fd00::8")
				s.Slots[7].Addresses = append(s.Slots[7].Addresses, v6)
				s.Pool[ip(7)], s.Handshakes[ip(7)] = EntryOf(7, true), Ready
				s.Pool[v6], s.Handshakes[v6] = EntryOf(7, true), Marked
			},
		},
		"and not at all if one is in use": {
			view: func(s *scene) {
				s.served(8, 4)
				v6 := netip.MustParseAddr("fd00::8")
				s.Slots[7].Addresses = append(s.Slots[7].Addresses, v6)
				s.Pool[ip(7)], s.Handshakes[ip(7)] = EntryOf(7, true), Ready
				s.Pool[v6], s.Handshakes[v6] = EntryOf(7, true), DoNotRelease
			},
			want: []string{"publish [10.0.0.8] of slot 7", "unmark [10.0.0.8] of slot 7", "publish [fd00::8] of slot 7", "unmark [fd00::8] of slot 7"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, settings := newScene(), small()
			if c.view != nil {
				c.view(&s)
			}
			if c.settings != nil {
				c.settings(&settings)
			}
			var got []string
			for _, a := range Plan(s.View, settings) {
				got = append(got, a.String())
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("got\n  %q\nwant\n  %q", got, c.want)
			}
		})
	}
}

func TestASlotIsKnownByItsOwnerAndItsPoolEntry(t *testing.T) {
	for text, want := range map[string]int{"ciliumnode-0": 0, "ciliumnode-17": 17, "ciliumnode-01": -1, "ciliumnode--1": -1, "ciliumnode-": -1, "router": -1, "ciliumnode-1x": -1, "ciliumnode-+1": -1} {
		got, ok := ParseOwner(text)
		if !ok {
			got = -1
		}
		if got != want {
			t.Errorf("owner %q: got slot %d, want %d", text, got, want)
		}
	}
	for n := range 20 {
		for _, fenced := range []bool{false, true} {
			e := EntryOf(n, fenced)
			if got, ok := e.Slot(); !ok || got != n || e.Cordoned() != fenced {
				t.Errorf("entry %+v: got slot %d, %t, fenced %t", e, got, ok, e.Cordoned())
			}
		}
		if got, ok := ParseOwner(Owner(n)); !ok || got != n {
			t.Errorf("owner %s: got slot %d, %t", Owner(n), got, ok)
		}
	}
	for _, e := range []Entry{{}, {Resource: "eth0"}, {Resource: "delegated-ipam/x"}, {Owner: fmt.Sprint(cordonOwner)}} {
		if n, ok := e.Slot(); ok {
			t.Errorf("%+v is slot %d, want nobody's", e, n)
		}
	}
}
