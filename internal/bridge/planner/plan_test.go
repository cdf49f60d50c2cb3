package planner

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"testing"
)

// fixture builds a state of one family, in which slot n has the address ip(n).
type fixture struct {
	Observed
	Remembered
}

func ip(n int) netip.Addr { return netip.AddrFrom4([4]byte{10, 0, 0, byte(n + 1)}) }

func newFixture() fixture {
	return fixture{
		Observed{Pool: map[netip.Addr]Entry{}, Used: map[netip.Addr]Entry{}, Handshakes: map[netip.Addr]Handshake{}},
		Remembered{Drained: map[netip.Addr]bool{}, Refused: map[netip.Addr]bool{}, ReleaseFailed: map[netip.Addr]bool{}},
	}
}

func ipv6(n int) netip.Addr { return netip.MustParseAddr(fmt.Sprintf("fd00::%x", n)) }

func (f *fixture) held(numbers ...int) {
	for _, n := range numbers {
		f.Slots = append(f.Slots, Slot{Number: n, Addresses: []netip.Addr{ip(n)}, Held: true})
	}
}

func (f *fixture) published(numbers ...int) {
	for _, n := range numbers {
		f.Pool[ip(n)] = EntryOf(n, false)
	}
}

func (f *fixture) used(numbers ...int) {
	for _, n := range numbers {
		f.Used[ip(n)] = Entry{Owner: "default/pod", Resource: EntryOf(n, false).Resource}
	}
}

// atRest holds and publishes the slots 0 to n-1, of which the agent uses the first ones.
func (f *fixture) atRest(n, used int) {
	for i := range n {
		f.held(i)
		f.published(i)
	}
	for i := range used {
		f.used(i)
	}
}

// outside moves held slots out of the ranges.
func (f *fixture) outside(numbers ...int) {
	for _, n := range numbers {
		f.Slots[n].Outside = true
	}
}

func (f *fixture) plan(s Settings) Plan { return New(f.Observed, f.Remembered, s) }

func smallSettings() Settings { return Settings{MinAllocate: 4, PreAllocate: 2, ReleaseExcess: true} }

func TestPlan(t *testing.T) {
	for name, c := range map[string]struct {
		view     func(*fixture)
		settings func(*Settings)
		want     []string
	}{
		"held without an address": {
			view: func(f *fixture) { f.atRest(6, 4); f.Slots = append(f.Slots, Slot{Number: 6, Held: true}) },
		},
		"up to date": {view: func(f *fixture) { f.atRest(6, 4) }},
		"new node: as many as the agent needs": {
			want: []string{"acquire slot 0", "acquire slot 1", "acquire slot 2"},
		},
		"too few to publish": {
			view: func(f *fixture) { f.held(0, 1) }, want: []string{"acquire slot 2"},
		},
		"initial publication, then the others": {
			view: func(f *fixture) { f.held(0, 1, 2) },
			want: []string{
				"publish [10.0.0.1] of slot 0", "publish [10.0.0.2] of slot 1", "publish [10.0.0.3] of slot 2", "acquire slot 3", "acquire slot 4",
			},
		},
		"max-above-watermark: acquire ahead": {
			view: func(f *fixture) { f.atRest(6, 5) }, settings: func(s *Settings) { s.MaxAboveWatermark = 2 },
			want: []string{"acquire slot 6", "acquire slot 7", "acquire slot 8"},
		},
		"max-above-watermark: enough are free": {
			view: func(f *fixture) { f.atRest(6, 4) }, settings: func(s *Settings) { s.MaxAboveWatermark = 2 },
		},
		"own range: all that its pods can use": {
			view: func(f *fixture) { f.atRest(4, 3) }, settings: func(s *Settings) { s.MaxPods = 3 }, want: []string{"acquire slot 4", "acquire slot 5"},
		},
		"own range: its pods come and go": {view: func(f *fixture) { f.atRest(6, 6); f.Pods = 3 }, settings: func(s *Settings) { s.MaxPods = 3 }},
		"own range: more pods than it can have": {
			view: func(f *fixture) { f.atRest(6, 6); f.Pods = 4 }, settings: func(s *Settings) { s.MaxPods = 3 }, want: []string{"acquire slot 6"},
		},
		"own range: its end": {view: func(f *fixture) { f.atRest(6, 6); f.RangeSize = 6 }, settings: func(s *Settings) { s.MaxPods = 9 }},
		"own range: more pods than its end has addresses": {
			view: func(f *fixture) { f.atRest(6, 6); f.RangeSize, f.Pods = 6, 5 }, settings: func(s *Settings) { s.MaxPods = 9 },
			want: []string{"acquire slot 6", "acquire slot 7"},
		},
		"own range: its end, and one is lost": {
			view:     func(f *fixture) { f.atRest(6, 3); f.RangeSize = 7 },
			settings: func(s *Settings) { s.MaxPods = 9 }, want: []string{"acquire slot 6"},
		},
		"own range: an excess is released": {
			view: func(f *fixture) { f.atRest(7, 3); f.Excess = 1 }, settings: func(s *Settings) { s.MaxPods = 3 }, want: []string{"suspend [10.0.0.7] of slot 6"},
		},
		"batch": {
			view: func(f *fixture) { f.atRest(6, 6); f.Batch = 1 }, want: []string{"acquire slot 6"},
		},
		"held is published before more is acquired": {
			view: func(f *fixture) { f.atRest(6, 6); f.held(6) }, want: []string{"publish [10.0.0.7] of slot 6", "acquire slot 7"},
		},
		"exhausted, enough for the agent": {
			view: func(f *fixture) { f.held(0, 1, 2); f.Exhausted = true },
			want: []string{"publish [10.0.0.1] of slot 0", "publish [10.0.0.2] of slot 1", "publish [10.0.0.3] of slot 2"},
		},
		"exhausted, too few for the agent": {
			view: func(f *fixture) { f.held(0, 1); f.Exhausted = true },
		},
		"used plus pre-allocate": {
			view: func(f *fixture) { f.atRest(6, 5) }, want: []string{"acquire slot 6"},
		},
		"max-allocate": {
			view: func(f *fixture) { f.atRest(6, 5) }, settings: func(s *Settings) { s.MaxAllocate = 6 },
		},
		"pods without an address": {
			view: func(f *fixture) { f.atRest(6, 4); f.Pods = 3 }, want: []string{"acquire slot 6", "acquire slot 7"},
		},
		"enough for pods without an address": {view: func(f *fixture) { f.atRest(7, 4); f.Pods = 2 }},
		"pods, and four addresses of the agent": {
			view: func(f *fixture) {
				f.atRest(7, 4)
				f.Pods = 2
				for n := range 4 {
					f.Used[ip(n)] = Entry{Owner: "router"}
				}
			},
			want: []string{"acquire slot 7"},
		},
		"pods that ended and still use an address": {
			view: func(f *fixture) { f.atRest(7, 5); f.Pods = 1 },
		},
		"headroom": {
			view: func(f *fixture) { f.atRest(6, 4); f.Headroom = 2 }, want: []string{"acquire slot 6", "acquire slot 7"},
		},
		"number reserved by the pool": {
			view: func(f *fixture) {
				f.atRest(6, 5)
				f.published(6)
				f.used(6)
				f.Refused[ip(6)] = true
			},
			want: []string{"acquire slot 7", "report AddressNotHeld 10.0.0.7"},
		},
		"used, not published": {
			view: func(f *fixture) { f.atRest(6, 4); delete(f.Pool, ip(1)) }, want: []string{"publish [10.0.0.2] of slot 1"},
		},
		"used, not published, in a handshake": {
			view: func(f *fixture) { f.atRest(6, 4); delete(f.Pool, ip(1)); f.Handshakes[ip(1)] = ReadyForRelease },
			want: []string{"publish [10.0.0.2] of slot 1", "unmark [10.0.0.2] of slot 1"},
		},
		"used, not held": {
			view: func(f *fixture) { f.atRest(6, 4); f.used(9) }, want: []string{"restore [10.0.0.10] of slot 9"},
		},
		"published, not held": {
			view: func(f *fixture) { f.atRest(6, 4); f.published(9) }, want: []string{"restore [10.0.0.10] of slot 9"},
		},
		"published, not held, two families": {
			view: func(f *fixture) { f.atRest(6, 4); f.published(9); f.Pool[ipv6(9)] = EntryOf(9, false) },
			want: []string{"restore [10.0.0.10] with fd00::9 of slot 9", "restore [fd00::9] with 10.0.0.10 of slot 9"},
		},
		"used, not held, two families": {
			view: func(f *fixture) {
				f.atRest(6, 4)
				f.used(9)
				f.Pool[ipv6(9)] = EntryOf(9, false)
			},
			want: []string{"restore [10.0.0.10] with fd00::9 of slot 9", "restore [fd00::9] with 10.0.0.10 of slot 9"},
		},
		"published, two families, one held": {
			view: func(f *fixture) {
				f.atRest(6, 4)
				f.held(9)
				f.published(9)
				f.Pool[ipv6(9)] = EntryOf(9, false)
			},
			want: []string{"restore [fd00::9] of slot 9"},
		},
		"published and used, restore refused": {
			view: func(f *fixture) { f.atRest(6, 4); f.published(9); f.used(9); f.Refused[ip(9)] = true },
			want: []string{"report AddressNotHeld 10.0.0.10"},
		},
		"published, unused, restore refused": {
			view: func(f *fixture) { f.atRest(6, 4); f.published(9); f.Refused[ip(9)] = true },
			want: []string{"suspend [10.0.0.10] of slot 9"},
		},
		"published, drains, restored again": {
			view: func(f *fixture) { f.atRest(6, 4); f.Pool[ip(9)], f.Handshakes[Ping] = EntryOf(9, true), DoNotRelease },
			want: []string{"restore [10.0.0.10] of slot 9"},
		},
		"foreign entry": {
			view: func(f *fixture) { f.atRest(6, 4); f.Pool[ip(9)] = Entry{Owner: "vip"} },
			want: []string{"report ForeignPoolEntry 10.0.0.10"},
		},
		"foreign entry of a held address": {
			view: func(f *fixture) { f.atRest(6, 4); f.Pool[ip(5)] = Entry{} }, want: []string{"publish [10.0.0.6] of slot 5"},
		},
		"address of a slot changed": {
			view: func(f *fixture) {
				f.atRest(6, 4)
				f.Slots[0].Addresses = []netip.Addr{ip(20)}
				f.Refused[ip(0)] = true
			},
			want: []string{"publish [10.0.0.21] of slot 0", "report AddressNotHeld 10.0.0.1"},
		},
		"excess that has not lasted": {view: func(f *fixture) { f.atRest(8, 4) }},
		"excess": {
			view: func(f *fixture) { f.atRest(8, 4); f.Excess = 2 }, want: []string{"suspend [10.0.0.7] of slot 6", "suspend [10.0.0.8] of slot 7"},
		},
		"excess while something else is to do": {
			view: func(f *fixture) { f.atRest(8, 4); f.Excess = 2; f.published(9) }, want: []string{"restore [10.0.0.10] of slot 9"},
		},
		"excess while a release is in progress": {
			view: func(f *fixture) {
				f.atRest(8, 4)
				f.Excess, f.Pool[ip(7)], f.Handshakes[Ping] = 1, EntryOf(7, true), MarkedForRelease
			},
		},
		"suspended: one ping": {
			view: func(f *fixture) { f.atRest(8, 4); f.Pool[ip(6)], f.Pool[ip(7)] = EntryOf(6, true), EntryOf(7, true) },
			want: []string{"mark-for-release [0.0.0.0] of slot 0"},
		},
		"ping answered before the suspension": {
			view: func(f *fixture) { f.atRest(8, 4); f.Handshakes[Ping] = DoNotRelease },
			want: []string{"unmark [0.0.0.0] of slot 0"},
		},
		"ping answered: drain": {
			view: func(f *fixture) { f.atRest(8, 4); f.Pool[ip(7)] = EntryOf(7, true); f.Handshakes[Ping] = DoNotRelease },
		},
		"drained before the answer": {
			view: func(f *fixture) {
				f.atRest(8, 4)
				f.Pool[ip(7)], f.Handshakes[Ping], f.Drained[ip(7)] = EntryOf(7, true), MarkedForRelease, true
			},
		},
		"one of two families suspended": {
			view: func(f *fixture) {
				f.atRest(8, 4)
				v6 := netip.MustParseAddr("fd00::8")
				f.Slots[7].Addresses = append(f.Slots[7].Addresses, v6)
				f.Pool[ip(7)], f.Pool[v6], f.Handshakes[Ping] = EntryOf(7, true), EntryOf(7, false), DoNotRelease
			},
			want: []string{"unmark [0.0.0.0] of slot 0", "suspend [fd00::8] of slot 7"},
		},
		"suspended, then used": {
			view: func(f *fixture) { f.atRest(8, 4); f.Pool[ip(7)] = EntryOf(7, true); f.used(7) },
			want: []string{"publish [10.0.0.8] of slot 7"},
		},
		"drained: mark": {
			view: func(f *fixture) {
				f.atRest(8, 4)
				f.Pool[ip(7)], f.Handshakes[Ping], f.Drained[ip(7)] = EntryOf(7, true), DoNotRelease, true
			},
			want: []string{"mark-for-release [10.0.0.8] of slot 7", "unmark [0.0.0.0] of slot 0"},
		},
		"one of two drained: the ping stays": {
			view: func(f *fixture) {
				f.atRest(8, 4)
				f.Pool[ip(6)], f.Pool[ip(7)], f.Handshakes[Ping], f.Drained[ip(7)] = EntryOf(6, true), EntryOf(7, true), DoNotRelease, true
			},
			want: []string{"mark-for-release [10.0.0.8] of slot 7"},
		},
		"marked: wait": {
			view: func(f *fixture) {
				f.atRest(8, 4)
				f.Pool[ip(7)], f.Handshakes[ip(7)] = EntryOf(7, true), MarkedForRelease
			},
		},
		"ready: withdraw and release": {
			view: func(f *fixture) {
				f.atRest(8, 4)
				f.Pool[ip(7)], f.Handshakes[ip(7)] = EntryOf(7, true), ReadyForRelease
			},
			want: []string{"withdraw [10.0.0.8] of slot 7", "release [10.0.0.8] of slot 7", "mark-released [10.0.0.8] of slot 7"},
		},
		"two ready: two writes": {
			view: func(f *fixture) {
				f.atRest(8, 4)
				for n := 6; n < 8; n++ {
					f.Pool[ip(n)], f.Handshakes[ip(n)] = EntryOf(n, true), ReadyForRelease
				}
			},
			want: []string{
				"withdraw [10.0.0.7] of slot 6", "withdraw [10.0.0.8] of slot 7", "release [10.0.0.7] of slot 6", "release [10.0.0.8] of slot 7",
				"mark-released [10.0.0.7] of slot 6", "mark-released [10.0.0.8] of slot 7",
			},
		},
		"release failed": {
			view: func(f *fixture) {
				f.atRest(6, 4)
				f.held(6)
				f.Handshakes[ip(6)] = ReadyForRelease
				f.ReleaseFailed[ip(6)] = true
			},
		},
		"release failed, another excess": {
			view: func(f *fixture) {
				f.atRest(8, 4)
				f.held(9)
				f.Handshakes[ip(9)], f.ReleaseFailed[ip(9)], f.Excess = ReadyForRelease, true, 1
			},
			want: []string{"suspend [10.0.0.8] of slot 7"},
		},
		"do-not-release: cancel": {
			view: func(f *fixture) { f.atRest(8, 4); f.Pool[ip(7)], f.Handshakes[ip(7)] = EntryOf(7, true), DoNotRelease },
			want: []string{"publish [10.0.0.8] of slot 7", "unmark [10.0.0.8] of slot 7"},
		},
		"needed: cancel before acquiring": {
			view: func(f *fixture) {
				f.atRest(7, 5)
				f.Pool[ip(6)], f.Handshakes[ip(6)] = EntryOf(6, true), ReadyForRelease
			},
			want: []string{"publish [10.0.0.7] of slot 6", "unmark [10.0.0.7] of slot 6"},
		},
		"withdrawn, needed: release": {
			view: func(f *fixture) { f.atRest(6, 5); f.held(6); f.Handshakes[ip(6)] = ReadyForRelease },
			want: []string{"release [10.0.0.7] of slot 6", "mark-released [10.0.0.7] of slot 6", "acquire slot 7"},
		},
		"do-not-release, not held: stay suspended": {
			view: func(f *fixture) {
				f.atRest(6, 4)
				f.Pool[ip(9)], f.Handshakes[ip(9)], f.Refused[ip(9)] = EntryOf(9, true), DoNotRelease, true
			},
			want: []string{"unmark [10.0.0.10] of slot 9"},
		},
		"released, still published": {
			view: func(f *fixture) { f.atRest(6, 4); f.Handshakes[ip(5)] = Released },
			want: []string{"unmark [10.0.0.6] of slot 5"},
		},
		"ready, not held: withdraw": {
			view: func(f *fixture) {
				f.atRest(6, 4)
				f.Pool[ip(9)], f.Handshakes[ip(9)] = EntryOf(9, true), ReadyForRelease
			},
			want: []string{"withdraw [10.0.0.10] of slot 9", "mark-released [10.0.0.10] of slot 9"},
		},
		"ready, not held, used: restore": {
			view: func(f *fixture) {
				f.atRest(6, 4)
				f.Pool[ip(9)], f.Handshakes[ip(9)] = EntryOf(9, true), ReadyForRelease
				f.used(9)
			},
			want: []string{"restore [10.0.0.10] of slot 9"},
		},
		"number reserved by the sidecar": {
			view: func(f *fixture) {
				f.atRest(6, 5)
				f.Slots = append(f.Slots, Slot{Number: 6, Addresses: []netip.Addr{ip(6)}})
				f.Refused[ip(6)] = true
			},
			want: []string{"release [10.0.0.7] of slot 6", "acquire slot 7"},
		},
		"killed after withdraw": {
			view: func(f *fixture) { f.atRest(6, 4); f.held(6); f.Handshakes[ip(6)] = ReadyForRelease },
			want: []string{"release [10.0.0.7] of slot 6", "mark-released [10.0.0.7] of slot 6"},
		},
		"killed after release": {
			view: func(f *fixture) { f.atRest(6, 4); f.Handshakes[ip(6)] = ReadyForRelease }, want: []string{"mark-released [10.0.0.7] of slot 0"},
		},
		"released, still held": {
			view: func(f *fixture) { f.atRest(6, 4); f.held(6); f.Handshakes[ip(6)] = Released },
		},
		"lost slot": {
			view: func(f *fixture) {
				f.atRest(6, 4)
				f.Slots = append(f.Slots, Slot{Number: 6, Addresses: []netip.Addr{ip(6)}})
			},
			want: []string{"restore [10.0.0.7] of slot 6"},
		},
		"lost slot, restore refused": {
			view: func(f *fixture) {
				f.Refused[ip(6)] = true
				f.atRest(6, 4)
				f.Slots = append(f.Slots, Slot{Number: 6, Addresses: []netip.Addr{ip(6)}})
			},
			want: []string{"release [10.0.0.7] of slot 6"},
		},
		"lost slot of a pod, restore refused": {
			view: func(f *fixture) {
				f.Refused[ip(6)], f.PodIPs = true, map[netip.Addr]bool{ip(6): true}
				f.atRest(6, 4)
				f.Slots = append(f.Slots, Slot{Number: 6, Addresses: []netip.Addr{ip(6)}})
			},
			want: []string{"report AddressNotHeld 10.0.0.7"},
		},
		"lost slot, restore refused, pods not listed": {
			view: func(f *fixture) {
				f.Refused[ip(6)], f.PodsPending = true, true
				f.atRest(6, 4)
				f.Slots = append(f.Slots, Slot{Number: 6, Addresses: []netip.Addr{ip(6)}})
			},
		},
		"outside the ranges, not published": {
			view: func(f *fixture) { f.atRest(6, 4); f.held(6); f.outside(6) }, want: []string{"release [10.0.0.7] of slot 6"},
		},
		"outside the ranges, not published, release failed": {
			view: func(f *fixture) { f.atRest(6, 4); f.held(6); f.outside(6); f.ReleaseFailed[ip(6)] = true },
		},
		"outside the ranges, new CiliumNode": {
			view: func(f *fixture) { f.held(0, 1, 2, 3); f.outside(0, 1, 2, 3) },
			want: []string{
				"release [10.0.0.1] of slot 0", "release [10.0.0.2] of slot 1", "release [10.0.0.3] of slot 2", "release [10.0.0.4] of slot 3",
				"acquire slot 4", "acquire slot 5", "acquire slot 6",
			},
		},
		"outside the ranges, new CiliumNode, pods": {
			view: func(f *fixture) {
				f.held(0, 1, 2, 3)
				f.outside(0, 1, 2, 3)
				f.Pods, f.PodIPs = 1, map[netip.Addr]bool{ip(2): true}
			},
			want: []string{
				"release [10.0.0.1] of slot 0", "release [10.0.0.2] of slot 1", "release [10.0.0.4] of slot 3",
				"acquire slot 4", "acquire slot 5", "acquire slot 6", "report AddressOutsideRange 10.0.0.3",
			},
		},
		"outside the ranges, new CiliumNode, pods, first publication": {
			view: func(f *fixture) {
				f.held(0, 1, 2, 3)
				f.outside(0)
				f.Slots[0].Addresses = append(f.Slots[0].Addresses, ipv6(0))
				f.Pods, f.PodIPs = 1, map[netip.Addr]bool{ip(0): true}
			},
			want: []string{
				"suspend [10.0.0.1] of slot 0", "publish [10.0.0.2] of slot 1", "publish [10.0.0.3] of slot 2", "publish [10.0.0.4] of slot 3",
				"acquire slot 4", "acquire slot 5", "report AddressOutsideRange 10.0.0.1",
			},
		},
		"outside the ranges, new CiliumNode, more slots of pods than needed": {
			view: func(f *fixture) {
				f.held(0, 1, 2, 3, 4, 5)
				f.outside(0, 1, 2, 3)
				f.PodIPs = map[netip.Addr]bool{ip(0): true, ip(1): true, ip(2): true, ip(3): true}
			},
			want: []string{
				"acquire slot 6", "report AddressOutsideRange 10.0.0.1", "report AddressOutsideRange 10.0.0.2",
				"report AddressOutsideRange 10.0.0.3", "report AddressOutsideRange 10.0.0.4",
			},
		},
		"outside the ranges, new CiliumNode, max-allocate slots of pods": {
			view: func(f *fixture) {
				f.held(0, 1, 2, 3)
				f.outside(0, 1, 2, 3)
				f.PodIPs = map[netip.Addr]bool{ip(0): true, ip(1): true, ip(2): true, ip(3): true}
			},
			settings: func(s *Settings) { s.MaxAllocate = 4 },
			want: []string{
				"acquire slot 4", "acquire slot 5", "acquire slot 6", "report AddressOutsideRange 10.0.0.1", "report AddressOutsideRange 10.0.0.2",
				"report AddressOutsideRange 10.0.0.3", "report AddressOutsideRange 10.0.0.4",
			},
		},
		"outside the ranges, new CiliumNode, pods not listed": {
			view: func(f *fixture) { f.held(0, 1); f.outside(0, 1); f.PodIPs, f.PodsPending = map[netip.Addr]bool{}, true },
			want: []string{"acquire slot 2", "acquire slot 3", "acquire slot 4"},
		},
		"outside the ranges, published, of a pod": {
			view: func(f *fixture) { f.atRest(7, 4); f.outside(6); f.Pods, f.PodIPs = 1, map[netip.Addr]bool{ip(6): true} },
			want: []string{"suspend [10.0.0.7] of slot 6", "report AddressOutsideRange 10.0.0.7"},
		},
		"outside the ranges, free": {
			view: func(f *fixture) { f.atRest(7, 4); f.outside(6) }, settings: func(s *Settings) { s.ReleaseExcess = false },
			want: []string{"suspend [10.0.0.7] of slot 6"},
		},
		"outside the ranges, free, and needed": {
			view: func(f *fixture) { f.atRest(6, 4); f.outside(5); f.Pool[ip(5)] = EntryOf(5, true) },
			want: []string{"mark-for-release [0.0.0.0] of slot 0", "acquire slot 6"},
		},
		"outside the ranges, ready": {
			view: func(f *fixture) {
				f.atRest(7, 4)
				f.outside(6)
				f.Pool[ip(6)], f.Handshakes[ip(6)] = EntryOf(6, true), ReadyForRelease
			},
			want: []string{"withdraw [10.0.0.7] of slot 6", "release [10.0.0.7] of slot 6", "mark-released [10.0.0.7] of slot 6"},
		},
		"outside the ranges, do-not-release": {
			view: func(f *fixture) {
				f.atRest(7, 4)
				f.outside(6)
				f.Pool[ip(6)], f.Handshakes[ip(6)] = EntryOf(6, true), DoNotRelease
			},
			want: []string{"unmark [10.0.0.7] of slot 6"},
		},
		"outside the ranges, used": {
			view: func(f *fixture) { f.atRest(6, 4); f.outside(0, 1); f.Handshakes[ip(1)] = MarkedForRelease },
			want: []string{
				"suspend [10.0.0.1] of slot 0", "suspend [10.0.0.2] of slot 1", "unmark [10.0.0.2] of slot 1",
				"report AddressOutsideRange 10.0.0.1", "report AddressOutsideRange 10.0.0.2",
			},
		},
		"outside the ranges, used and suspended": {
			view: func(f *fixture) { f.atRest(6, 4); f.outside(0); f.Pool[ip(0)] = EntryOf(0, true) },
			want: []string{"report AddressOutsideRange 10.0.0.1"},
		},
		"outside the ranges, used, not published": {
			view: func(f *fixture) { f.atRest(6, 4); f.outside(0); delete(f.Pool, ip(0)) },
			want: []string{"suspend [10.0.0.1] of slot 0", "report AddressOutsideRange 10.0.0.1"},
		},
		"outside the ranges, another slot lost": {
			view: func(f *fixture) { f.atRest(6, 4); f.outside(0); f.used(9) },
			want: []string{"suspend [10.0.0.1] of slot 0", "restore [10.0.0.10] of slot 9", "report AddressOutsideRange 10.0.0.1"},
		},
		"in the ranges again": {
			view: func(f *fixture) { f.atRest(6, 4); f.Pool[ip(0)] = EntryOf(0, true) },
			want: []string{"publish [10.0.0.1] of slot 0"},
		},
		"no configuration": {
			view: func(f *fixture) {
				f.atRest(6, 4)
				f.held(6)
				for i := range f.Slots {
					f.Slots[i].Unconfigured = true
				}
			},
		},
		"no configuration, new CiliumNode": {
			view: func(f *fixture) {
				f.held(0, 1, 2, 3, 4)
				for i := range f.Slots {
					f.Slots[i].Unconfigured = true
				}
			},
		},
		"two families, one ready": {
			view: func(f *fixture) {
				f.atRest(8, 4)
				v6 := netip.MustParseAddr("fd00::8")
				f.Slots[7].Addresses = append(f.Slots[7].Addresses, v6)
				f.Pool[ip(7)], f.Handshakes[ip(7)] = EntryOf(7, true), ReadyForRelease
				f.Pool[v6], f.Handshakes[v6] = EntryOf(7, true), MarkedForRelease
			},
		},
		"two families, one do-not-release": {
			view: func(f *fixture) {
				f.atRest(8, 4)
				v6 := netip.MustParseAddr("fd00::8")
				f.Slots[7].Addresses = append(f.Slots[7].Addresses, v6)
				f.Pool[ip(7)], f.Handshakes[ip(7)] = EntryOf(7, true), ReadyForRelease
				f.Pool[v6], f.Handshakes[v6] = EntryOf(7, true), DoNotRelease
			},
			want: []string{"publish [10.0.0.8] of slot 7", "publish [fd00::8] of slot 7", "unmark [10.0.0.8] of slot 7", "unmark [fd00::8] of slot 7"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			f, settings := newFixture(), smallSettings()
			if c.view != nil {
				c.view(&f)
			}
			if c.settings != nil {
				c.settings(&settings)
			}
			plan := f.plan(settings)
			var got []string
			for _, a := range plan.Actions() {
				got = append(got, a.String())
			}
			for _, r := range plan.Reports {
				got = append(got, fmt.Sprintf("report %s %s", r.Reason, r.IP))
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("got\n  %q\nwant\n  %q", got, c.want)
			}
		})
	}
}

// Used addresses that are neither in the pool nor held count only if pods and agent can use
// them: any client that may write the status could otherwise make the bridge acquire slots.
func TestUnknownUsedAddresses(t *testing.T) {
	for name, c := range map[string]struct {
		tagged, pending, unknown bool
		// owner is the owner of the tagged addresses, default/invented if it is empty.
		owner              string
		v6                 bool
		most               int
		podIP              netip.Addr
		restored, reported int
	}{
		"no slots":              {reported: 300},
		"slots":                 {tagged: true, restored: 3, reported: 297},
		"slots, of the agent":   {tagged: true, owner: "invented", restored: 3, reported: 297},
		"slots, IPv6":           {tagged: true, owner: "invented", v6: true, restored: 7, reported: 293},
		"slots, one of a pod":   {tagged: true, podIP: invented(299), restored: 3, reported: 297},
		"pods are not listed":   {tagged: true, pending: true, unknown: true},
		"pods are not watched":  {tagged: true, unknown: true, restored: 300},
		"max-allocate":          {tagged: true, unknown: true, most: 12, restored: 8, reported: 292},
		"no slots, no pod list": {pending: true, unknown: true, reported: 300},
	} {
		t.Run(name, func(t *testing.T) {
			f, settings := newFixture(), smallSettings()
			f.atRest(9, 4)
			f.Pods, f.PodsPending, f.PodIPs = 4, c.pending, map[netip.Addr]bool{ip(3): true}
			if c.podIP.IsValid() {
				f.PodIPs[c.podIP] = true
			}
			if c.unknown {
				f.Pods, f.PodIPs = 0, nil
			}
			for n := range 300 {
				ip, e := invented(n), Entry{Owner: "invented"}
				if c.tagged {
					e = Entry{Owner: cmp.Or(c.owner, "default/invented"), Resource: EntryOf(n+9, false).Resource}
				}
				if c.v6 {
					ip = ipv6(1000 + n)
				}
				f.Used[ip] = e
			}
			settings.MaxAllocate = c.most
			restored, reported := map[netip.Addr]bool{}, 0
			plan := f.plan(settings)
			for _, a := range plan.Restore {
				restored[a.IPs[0]] = true
			}
			for _, r := range plan.Reports {
				if r.Reason == AddressNotHeld {
					reported++
				}
			}
			if n := len(plan.Actions()); n != len(restored) {
				t.Errorf("the plan has %v", plan)
			}
			if len(restored) != c.restored || reported != c.reported || c.podIP.IsValid() && !restored[c.podIP] {
				t.Errorf("%d addresses are restored, %d reported; want %d and %d, with %s", len(restored), reported, c.restored, c.reported, c.podIP)
			}
			// The numbers of the others do not use up the limit.
			settings.MaxAllocate, f.Pods = 12, 6
			if c.restored == 0 && len(f.plan(settings).Acquire) == 0 {
				t.Error("no slot is acquired")
			}
		})
	}
}

// invented returns an address that no slot has.
func invented(n int) netip.Addr { return netip.AddrFrom4([4]byte{192, 168, byte(n >> 8), byte(n)}) }

// The address of a family that the sidecar has begun to serve is claimed.
func TestUnclaimed(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(*fixture)
		want   []int
	}{
		"all":        {func(*fixture) {}, []int{0, 1, 3}},
		"exhausted":  {func(f *fixture) { f.Exhausted = true }, []int{0, 1, 3}},
		"refused":    {func(f *fixture) { f.Refused[ipv6(0)] = true }, []int{1, 3}},
		"outside":    {func(f *fixture) { f.outside(0) }, []int{1, 3}},
		"no ranges":  {func(f *fixture) { f.Slots[0].Unconfigured = true }, []int{1, 3}},
		"in release": {func(f *fixture) { f.Pool[ip(1)] = EntryOf(1, true) }, []int{0, 3}},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture()
			f.atRest(4, 1)
			for _, n := range []int{0, 1, 3} {
				f.Slots[n].Unclaimed = []netip.Addr{ipv6(n)}
			}
			tt.change(&f)
			var got []int
			for _, a := range New(f.Observed, f.Remembered, Settings{MinAllocate: 3}).Restore {
				if a.IPs[0] != ipv6(a.Slot) {
					t.Errorf("restores %v", a)
				}
				got = append(got, a.Slot)
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("restores %v; want %v", got, tt.want)
			}
		})
	}
}
