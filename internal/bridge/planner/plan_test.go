package planner

import (
	"cmp"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
	"github.com/delegated-ipam/delegated-ipam/test/scenario"
)

// fixture is a state of one family, in which slot n has the address ip(n).
type fixture struct {
	Observed
	Remembered
	Settings
}

func ip(n int) netip.Addr { return netip.AddrFrom4([4]byte{10, 0, 0, byte(n + 1)}) }

func ipv6(n int) netip.Addr { return netip.MustParseAddr(fmt.Sprintf("fd00::%x", n)) }

// fixtureOf returns the fixture that commands such as "held 0 1; used 2-4" describe.
func fixtureOf(t *testing.T, commands string) *fixture {
	t.Helper()
	f := &fixture{
		Observed{Pool: map[netip.Addr]Entry{}, Used: map[netip.Addr]Entry{}, Handshakes: map[netip.Addr]Handshake{}},
		Remembered{Drained: map[netip.Addr]bool{}, Refused: map[netip.Addr]bool{}, ReleaseFailed: map[netip.Addr]bool{}},
		Settings{MinAllocate: 4, PreAllocate: 2, ReleaseExcess: true},
	}
	for command := range strings.SplitSeq(commands, ";") {
		words := strings.Fields(command)
		if len(words) == 0 {
			continue
		}
		name, args := words[0], words[1:]
		var state Handshake
		if len(args) > 0 && strings.Contains(args[0], "release") {
			state, args = Handshake(args[0]), args[1:]
		}
		numbers := scenario.Numbers(t, args)
		switch each, set := perNumber[name], settings[name]; {
		case each != nil:
			for _, n := range numbers {
				each(f, n, state)
			}
		case set != nil:
			set(f, append(numbers, 0))
		case name == "ping":
			f.Handshakes[Ping] = state
		default:
			t.Fatalf("unknown command %q", command)
		}
	}
	return f
}

// perNumber are commands for each of some slots, with a state of the release of their addresses.
var perNumber = map[string]func(f *fixture, n int, state Handshake){
	"held": func(f *fixture, n int, _ Handshake) {
		f.Slots = append(f.Slots, Slot{Number: n, Addresses: []netip.Addr{ip(n)}, Held: true})
	},
	"held-without-address": func(f *fixture, n int, _ Handshake) { f.Slots = append(f.Slots, Slot{Number: n, Held: true}) },
	// lost slots are denied by the plugin.
	"lost": func(f *fixture, n int, _ Handshake) {
		f.Slots = append(f.Slots, Slot{Number: n, Addresses: []netip.Addr{ip(n)}})
	},
	"dual":         func(f *fixture, n int, _ Handshake) { f.Slots[n].Addresses = append(f.Slots[n].Addresses, ipv6(n)) },
	"outside":      func(f *fixture, n int, _ Handshake) { f.Slots[n].Outside = true },
	"unconfigured": func(f *fixture, n int, _ Handshake) { f.Slots[n].Unconfigured = true },
	"unclaimed":    func(f *fixture, n int, _ Handshake) { f.Slots[n].Unclaimed = []netip.Addr{ipv6(n)} },

	"published":      func(f *fixture, n int, _ Handshake) { f.Pool[ip(n)] = EntryOf(n, false) },
	"published-ipv6": func(f *fixture, n int, _ Handshake) { f.Pool[ipv6(n)] = EntryOf(n, false) },
	"suspended":      func(f *fixture, n int, _ Handshake) { f.Pool[ip(n)] = EntryOf(n, true) },
	"withdrawn":      func(f *fixture, n int, _ Handshake) { delete(f.Pool, ip(n)) },
	"foreign":        func(f *fixture, n int, _ Handshake) { f.Pool[ip(n)] = Entry{Owner: "vip"} },
	"used": func(f *fixture, n int, _ Handshake) {
		f.Used[ip(n)] = Entry{Owner: "default/pod", Resource: EntryOf(n, false).Resource}
	},
	"handshake": func(f *fixture, n int, state Handshake) { f.Handshakes[ip(n)] = state },
	"releasing": func(f *fixture, n int, state Handshake) { f.Pool[ip(n)], f.Handshakes[ip(n)] = EntryOf(n, true), state },
	"releasing-ipv6": func(f *fixture, n int, state Handshake) {
		f.Pool[ipv6(n)], f.Handshakes[ipv6(n)] = EntryOf(n, true), state
	},

	"unasked": func(f *fixture, n int, _ Handshake) { f.Unasked = map[netip.Addr]bool{ip(n): true} },

	"drained":        func(f *fixture, n int, _ Handshake) { f.Drained[ip(n)] = true },
	"refused":        func(f *fixture, n int, _ Handshake) { f.Refused[ip(n)] = true },
	"refused-ipv6":   func(f *fixture, n int, _ Handshake) { f.Refused[ipv6(n)] = true },
	"release-failed": func(f *fixture, n int, _ Handshake) { f.ReleaseFailed[ip(n)] = true },
	"pod-ipv6":       func(f *fixture, n int, _ Handshake) { f.PodIPs[ipv6(n)] = true },
}

// settings are commands with one or two numbers, or none.
var settings = map[string]func(f *fixture, numbers []int){
	"at-rest": func(f *fixture, numbers []int) {
		for n := range numbers[0] {
			perNumber["held"](f, n, "")
			perNumber["published"](f, n, "")
		}
		for n := range numbers[1] {
			perNumber["used"](f, n, "")
		}
	},
	"moved": func(f *fixture, numbers []int) { f.Slots[numbers[0]].Addresses = []netip.Addr{ip(numbers[1])} },
	"used-by-agent": func(f *fixture, _ []int) {
		for ip := range f.Used {
			f.Used[ip] = Entry{Owner: "router"}
		}
	},
	"pod-ips": func(f *fixture, numbers []int) {
		f.PodIPs = map[netip.Addr]bool{}
		for _, n := range numbers[:len(numbers)-1] {
			f.PodIPs[ip(n)] = true
		}
	},
	"pods-pending": func(f *fixture, _ []int) { f.PodsPending = true },
	"pods":         func(f *fixture, numbers []int) { f.Pods = numbers[0] },
	"excess":       func(f *fixture, numbers []int) { f.Excess = numbers[0] },
	"exhausted":    func(f *fixture, _ []int) { f.Exhausted = true },
	// own-range has a range of the node's own, for this many pods and with this size; 0 if that is unknown.
	"own-range":           func(f *fixture, numbers []int) { f.MaxPods, f.RangeSize = numbers[0], numbers[1] },
	"batch":               func(f *fixture, numbers []int) { f.Batch = numbers[0] },
	"min-allocate":        func(f *fixture, numbers []int) { f.MinAllocate = numbers[0] },
	"pre-allocate":        func(f *fixture, numbers []int) { f.PreAllocate = numbers[0] },
	"max-allocate":        func(f *fixture, numbers []int) { f.MaxAllocate = numbers[0] },
	"max-above-watermark": func(f *fixture, numbers []int) { f.MaxAboveWatermark = numbers[0] },
	"headroom":            func(f *fixture, numbers []int) { f.Headroom = numbers[0] },
	"keep-excess":         func(f *fixture, _ []int) { f.ReleaseExcess = false },
}

func (f *fixture) plan() Plan { return New(f.Observed, f.Remembered, f.Settings) }

// text names an action briefly if it is about an address that its slot has in these tests.
func text(a Action) string {
	switch {
	case a.Kind == Acquire:
		return fmt.Sprintf("%s %d", a.Kind, a.Slot)
	case len(a.IPs) != 1 || a.Also.IsValid():
		return a.String()
	case a.IPs[0] == Ping:
		return string(a.Kind) + " ping"
	case a.IPs[0] == ip(a.Slot):
		return fmt.Sprintf("%s %d", a.Kind, a.Slot)
	case a.IPs[0] == ipv6(a.Slot):
		return fmt.Sprintf("%s %d/IPv6", a.Kind, a.Slot)
	}
	return a.String()
}

// TestPlan runs the cases of testdata/plan.txt.
func TestPlan(t *testing.T) {
	scenario.Each(t, "testdata/plan.txt", func(t *testing.T, lines []string) {
		state, want, _ := strings.Cut(lines[0], "=>")
		plan := fixtureOf(t, state).plan()
		var got []string
		for _, a := range plan.Actions() {
			got = append(got, text(a))
		}
		for _, r := range plan.Reports {
			got = append(got, fmt.Sprintf("%s %d", r.Reason, r.IP.As4()[3]-1))
		}
		check.Equal(t, state, strings.Join(got, "; "), strings.TrimSpace(want))
	})
}

func TestActionString(t *testing.T) {
	for want, a := range map[string]Action{
		"acquire slot 3":                            {Kind: Acquire, Slot: 3},
		"release [10.0.0.4 fd00::3] of slot 3":      {Kind: Release, Slot: 3, IPs: []netip.Addr{ip(3), ipv6(3)}},
		"restore [10.0.0.4] with fd00::3 of slot 3": {Kind: Restore, Slot: 3, IPs: []netip.Addr{ip(3)}, Also: ipv6(3)},
	} {
		if got := a.String(); got != want {
			t.Errorf("got %q; want %q", got, want)
		}
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
			f := fixtureOf(t, "at-rest 9 4; pods 4; pod-ips 3")
			f.PodsPending, f.MaxAllocate = c.pending, c.most
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
			restored, reported := map[netip.Addr]bool{}, 0
			plan := f.plan()
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
				t.Errorf("%d addresses are restored, %d reported; want %d and %d, with %s",
					len(restored), reported, c.restored, c.reported, c.podIP)
			}
			// The numbers of the others do not use up the limit.
			f.MaxAllocate, f.Pods = 12, 6
			if c.restored == 0 && len(f.plan().Acquire) == 0 {
				t.Error("no slot is acquired")
			}
		})
	}
}

func invented(n int) netip.Addr { return netip.AddrFrom4([4]byte{192, 168, byte(n >> 8), byte(n)}) }
