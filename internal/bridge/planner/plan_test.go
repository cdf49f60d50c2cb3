package planner

import (
	"cmp"
	"fmt"
	"net/netip"
	"strings"
	"testing"
)

// fixture builds a state of one family, in which slot n has the address ip(n).
type fixture struct {
	Observed
	Remembered
	Settings
}

func ip(n int) netip.Addr { return netip.AddrFrom4([4]byte{10, 0, 0, byte(n + 1)}) }

func ipv6(n int) netip.Addr { return netip.MustParseAddr(fmt.Sprintf("fd00::%x", n)) }

func newFixture() *fixture {
	return &fixture{
		Observed{Pool: map[netip.Addr]Entry{}, Used: map[netip.Addr]Entry{}, Handshakes: map[netip.Addr]Handshake{}},
		Remembered{Drained: map[netip.Addr]bool{}, Refused: map[netip.Addr]bool{}, ReleaseFailed: map[netip.Addr]bool{}},
		Settings{MinAllocate: 4, PreAllocate: 2, ReleaseExcess: true},
	}
}

func (f *fixture) each(numbers []int, do func(n int)) *fixture {
	for _, n := range numbers {
		do(n)
	}
	return f
}

func (f *fixture) with(change func(f *fixture)) *fixture {
	change(f)
	return f
}

func held(numbers ...int) *fixture { return newFixture().held(numbers...) }

// atRest holds and publishes the slots 0 to n-1, of which the agent uses the first ones.
func atRest(n, used int) *fixture {
	f := newFixture()
	for i := range n {
		f.held(i).published(i)
	}
	for i := range used {
		f.used(i)
	}
	return f
}

func (f *fixture) held(numbers ...int) *fixture {
	return f.each(numbers, func(n int) {
		f.Slots = append(f.Slots, Slot{Number: n, Addresses: []netip.Addr{ip(n)}, Held: true})
	})
}

// lost adds slots that the plugin denies.
func (f *fixture) lost(numbers ...int) *fixture {
	return f.each(numbers, func(n int) { f.Slots = append(f.Slots, Slot{Number: n, Addresses: []netip.Addr{ip(n)}}) })
}

func (f *fixture) published(numbers ...int) *fixture {
	return f.each(numbers, func(n int) { f.Pool[ip(n)] = EntryOf(n, false) })
}

// publishedIPv6 publishes the IPv6 address of slots that may not hold it.
func (f *fixture) publishedIPv6(numbers ...int) *fixture {
	return f.each(numbers, func(n int) { f.Pool[ipv6(n)] = EntryOf(n, false) })
}

func (f *fixture) suspended(numbers ...int) *fixture {
	return f.each(numbers, func(n int) { f.Pool[ip(n)] = EntryOf(n, true) })
}

func (f *fixture) used(numbers ...int) *fixture {
	return f.each(numbers, func(n int) {
		f.Used[ip(n)] = Entry{Owner: "default/pod", Resource: EntryOf(n, false).Resource}
	})
}

func (f *fixture) withdrawn(numbers ...int) *fixture {
	return f.each(numbers, func(n int) { delete(f.Pool, ip(n)) })
}

func (f *fixture) handshake(h Handshake, numbers ...int) *fixture {
	return f.each(numbers, func(n int) { f.Handshakes[ip(n)] = h })
}

func (f *fixture) ping(h Handshake) *fixture {
	return f.with(func(f *fixture) { f.Handshakes[Ping] = h })
}

// releasing suspends slots with this state of their release.
func (f *fixture) releasing(h Handshake, numbers ...int) *fixture {
	return f.suspended(numbers...).handshake(h, numbers...)
}

func (f *fixture) drained(n int) *fixture {
	return f.with(func(f *fixture) { f.Drained[ip(n)] = true })
}

func (f *fixture) refused(n int) *fixture {
	return f.with(func(f *fixture) { f.Refused[ip(n)] = true })
}

func (f *fixture) unasked(n int) *fixture {
	return f.with(func(f *fixture) { f.Unasked = map[netip.Addr]bool{ip(n): true} })
}

func (f *fixture) releaseFailed(n int) *fixture {
	return f.with(func(f *fixture) { f.ReleaseFailed[ip(n)] = true })
}

// outside moves held slots out of the ranges.
func (f *fixture) outside(numbers ...int) *fixture {
	return f.each(numbers, func(n int) { f.Slots[n].Outside = true })
}

func (f *fixture) unconfigured() *fixture {
	for i := range f.Slots {
		f.Slots[i].Unconfigured = true
	}
	return f
}

// dual makes a slot hold an IPv6 address too.
func (f *fixture) dual(n int) *fixture {
	f.Slots[n].Addresses = append(f.Slots[n].Addresses, ipv6(n))
	return f
}

func (f *fixture) podIPs(numbers ...int) *fixture {
	f.PodIPs = map[netip.Addr]bool{}
	return f.each(numbers, func(n int) { f.PodIPs[ip(n)] = true })
}

func (f *fixture) podsPending() *fixture { return f.with(func(f *fixture) { f.PodsPending = true }) }

func (f *fixture) pods(n int) *fixture { return f.with(func(f *fixture) { f.Pods = n }) }

func (f *fixture) excess(n int) *fixture { return f.with(func(f *fixture) { f.Excess = n }) }

func (f *fixture) exhausted() *fixture { return f.with(func(f *fixture) { f.Exhausted = true }) }

// ownRange has a range of the node's own, for this many pods and with this size; 0 if that is unknown.
func (f *fixture) ownRange(pods, size int) *fixture {
	return f.with(func(f *fixture) { f.MaxPods, f.RangeSize = pods, size })
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

func TestPlan(t *testing.T) {
	for name, tt := range map[string]struct {
		*fixture
		want string
	}{
		"held without an address": {
			atRest(6, 4).with(func(f *fixture) { f.Slots = append(f.Slots, Slot{Number: 6, Held: true}) }), "",
		},
		"up to date":                         {atRest(6, 4), ""},
		"new: as many as the agent needs":    {newFixture(), "acquire 0; acquire 1; acquire 2"},
		"too few to publish":                 {held(0, 1), "acquire 2"},
		"first publication, then the others": {held(0, 1, 2), "publish 0; publish 1; publish 2; acquire 3; acquire 4"},
		"max-above-watermark: acquire ahead": {
			atRest(6, 5).with(func(f *fixture) { f.MaxAboveWatermark = 2 }), "acquire 6; acquire 7; acquire 8",
		},
		"max-above-watermark: enough are free":      {atRest(6, 4).with(func(f *fixture) { f.MaxAboveWatermark = 2 }), ""},
		"own range: all that its pods can use":      {atRest(4, 3).ownRange(3, 0), "acquire 4; acquire 5"},
		"own range: its pods come and go":           {atRest(6, 6).pods(3).ownRange(3, 0), ""},
		"own range: more pods than it can have":     {atRest(6, 6).pods(4).ownRange(3, 0), "acquire 6"},
		"own range: its end":                        {atRest(6, 6).ownRange(9, 6), ""},
		"own range: more pods than addresses":       {atRest(6, 6).pods(5).ownRange(9, 6), "acquire 6; acquire 7"},
		"own range: its end, and one is lost":       {atRest(6, 3).ownRange(9, 7), "acquire 6"},
		"own range: an excess is released":          {atRest(7, 3).excess(1).ownRange(3, 0), "suspend 6"},
		"batch":                                     {atRest(6, 6).with(func(f *fixture) { f.Batch = 1 }), "acquire 6"},
		"held is published before more is acquired": {atRest(6, 6).held(6), "publish 6; acquire 7"},
		"unknown pods: the watermark first":         {held(0, 1, 2).podIPs(10, 11).with(func(f *fixture) { f.MinAllocate = 7 }), "acquire 3; acquire 4; acquire 5; acquire 6"},
		"unknown pods: as many as there are":        {held(0, 1, 2, 3).podIPs(10, 11), "acquire 4"},
		"pods: one slot for each":                   {held(0, 1, 2, 3).podIPs(0, 1), "acquire 4"},
		"pods: all have their slots":                {held(0, 1, 2, 3, 4).podIPs(0, 1).with(func(f *fixture) { f.Batch = 1 }), "publish 0; publish 1; publish 2; publish 3; publish 4"},
		"pods: one has no slot, search":             {held(0, 1, 2, 3, 4, 5, 6, 7).podIPs(0, 20).with(func(f *fixture) { f.Batch = 1 }), "acquire 8"},
		"pods: one has no slot, max-allocate":       {held(0, 1, 2, 3, 4, 5).podIPs(0, 20).with(func(f *fixture) { f.MaxAllocate = 6 }), "publish 0; publish 1; publish 2; publish 3; publish 4; publish 5"},
		"pods: IPv6 counts separately": {
			held(0, 1, 2, 3).podIPs(0).dual(0).dual(1).dual(2).dual(3).with(func(f *fixture) { f.PodIPs[ipv6(0)], f.PodIPs[ipv6(1)], f.Batch = true, true, 1 }), "acquire 4",
		},
		"exhausted, enough for the agent":    {held(0, 1, 2).exhausted(), "publish 0; publish 1; publish 2"},
		"exhausted, too few for the agent":   {held(0, 1).exhausted(), ""},
		"used plus pre-allocate":             {atRest(6, 5), "acquire 6"},
		"max-allocate":                       {atRest(6, 5).with(func(f *fixture) { f.MaxAllocate = 6 }), ""},
		"pods without an address":            {atRest(6, 4).pods(3), "acquire 6; acquire 7"},
		"enough for pods without an address": {atRest(7, 4).pods(2), ""},
		"pods, and four addresses of the agent": {
			atRest(7, 4).pods(2).with(func(f *fixture) {
				for ip := range f.Used {
					f.Used[ip] = Entry{Owner: "router"}
				}
			}), "acquire 7",
		},
		"pods that ended and still use an address": {atRest(7, 5).pods(1), ""},
		"headroom":                    {atRest(6, 4).with(func(f *fixture) { f.Headroom = 2 }), "acquire 6; acquire 7"},
		"number reserved by the pool": {atRest(6, 5).published(6).used(6).refused(6), "acquire 7; AddressNotHeld 6"},
		"used, not published":         {atRest(6, 4).withdrawn(1), "publish 1"},
		"used, not published, in a handshake": {
			atRest(6, 4).withdrawn(1).handshake(ReadyForRelease, 1), "publish 1; unmark 1",
		},
		"used, not held":      {atRest(6, 4).used(9), "restore 9"},
		"published, not held": {atRest(6, 4).published(9), "restore 9"},
		"published, not held, two families": {
			atRest(6, 4).published(9).publishedIPv6(9),
			"restore [10.0.0.10] with fd00::9 of slot 9; restore [fd00::9] with 10.0.0.10 of slot 9",
		},
		"used, not held, two families": {
			atRest(6, 4).used(9).publishedIPv6(9),
			"restore [10.0.0.10] with fd00::9 of slot 9; restore [fd00::9] with 10.0.0.10 of slot 9",
		},
		"published, two families, one held": {atRest(6, 4).held(9).published(9).publishedIPv6(9), "restore 9/IPv6"},
		"published and used, refused":       {atRest(6, 4).published(9).used(9).refused(9), "AddressNotHeld 9"},
		"published, unused, refused":        {atRest(6, 4).published(9).refused(9), "suspend 9"},
		"published, drains, restored again": {atRest(6, 4).suspended(9).ping(DoNotRelease), "restore 9"},
		"foreign entry": {
			atRest(6, 4).with(func(f *fixture) { f.Pool[ip(9)] = Entry{Owner: "vip"} }), "ForeignPoolEntry 9",
		},
		"foreign entry of a held address": {
			atRest(6, 4).with(func(f *fixture) { f.Pool[ip(5)] = Entry{} }), "publish 5",
		},
		"address of a slot changed": {
			atRest(6, 4).refused(0).with(func(f *fixture) { f.Slots[0].Addresses = []netip.Addr{ip(20)} }),
			"publish [10.0.0.21] of slot 0; AddressNotHeld 0",
		},
		"excess that has not lasted":            {atRest(8, 4), ""},
		"excess":                                {atRest(8, 4).excess(2), "suspend 6; suspend 7"},
		"excess while something else is to do":  {atRest(8, 4).excess(2).published(9), "restore 9"},
		"excess while a release is in progress": {atRest(8, 4).excess(1).suspended(7).ping(MarkedForRelease), ""},
		"suspended: one ping":                   {atRest(8, 4).suspended(6, 7), "mark-for-release ping"},
		"ping answered before the suspension":   {atRest(8, 4).ping(DoNotRelease), "unmark ping"},
		"ping answered: drain":                  {atRest(8, 4).suspended(7).ping(DoNotRelease), ""},
		"drained before the answer":             {atRest(8, 4).suspended(7).ping(MarkedForRelease).drained(7), ""},
		"one of two families suspended": {
			atRest(8, 4).dual(7).suspended(7).publishedIPv6(7).ping(DoNotRelease), "unmark ping; suspend 7/IPv6",
		},
		"suspended, then used": {atRest(8, 4).suspended(7).used(7), "publish 7"},
		"drained: mark":        {atRest(8, 4).suspended(7).ping(DoNotRelease).drained(7), "mark-for-release 7; unmark ping"},
		"one of two drained: the ping stays": {
			atRest(8, 4).suspended(6, 7).ping(DoNotRelease).drained(7), "mark-for-release 7",
		},
		"marked: wait": {atRest(8, 4).releasing(MarkedForRelease, 7), ""},
		"ready: withdraw and release": {
			atRest(8, 4).releasing(ReadyForRelease, 7), "withdraw 7; release 7; mark-released 7",
		},
		"two ready: two writes": {
			atRest(8, 4).releasing(ReadyForRelease, 6, 7),
			"withdraw 6; withdraw 7; release 6; release 7; mark-released 6; mark-released 7",
		},
		"release failed": {atRest(6, 4).held(6).handshake(ReadyForRelease, 6).releaseFailed(6), ""},
		"release failed, another excess": {
			atRest(8, 4).held(9).handshake(ReadyForRelease, 9).releaseFailed(9).excess(1), "suspend 7",
		},
		"do-not-release: cancel":          {atRest(8, 4).releasing(DoNotRelease, 7), "publish 7; unmark 7"},
		"needed: cancel before acquiring": {atRest(7, 5).releasing(ReadyForRelease, 6), "publish 6; unmark 6"},
		"withdrawn, needed: release": {
			atRest(6, 5).held(6).handshake(ReadyForRelease, 6), "release 6; mark-released 6; acquire 7",
		},
		"do-not-release, not held":               {atRest(6, 4).releasing(DoNotRelease, 9).refused(9), "unmark 9"},
		"marked, not known":                      {atRest(6, 4).handshake(MarkedForRelease, 9), "unmark [10.0.0.10] of slot 0"},
		"released, still published":              {atRest(6, 4).handshake(Released, 5), "unmark 5"},
		"ready, not held: withdraw":              {atRest(6, 4).releasing(ReadyForRelease, 9), "withdraw 9; mark-released 9"},
		"ready, not held, used: restore":         {atRest(6, 4).releasing(ReadyForRelease, 9).used(9), "restore 9"},
		"number reserved by the daemon":          {atRest(6, 5).lost(6).refused(6), "release 6; acquire 7"},
		"killed after withdraw":                  {atRest(6, 4).held(6).handshake(ReadyForRelease, 6), "release 6; mark-released 6"},
		"killed after release":                   {atRest(6, 4).handshake(ReadyForRelease, 6), "mark-released [10.0.0.7] of slot 0"},
		"released, still held":                   {atRest(6, 4).held(6).handshake(Released, 6), ""},
		"lost slot":                              {atRest(6, 4).lost(6), "restore 6"},
		"lost slot, refused":                     {atRest(6, 4).lost(6).refused(6), "release 6"},
		"lost slot of a pod, refused":            {atRest(6, 4).lost(6).refused(6).podIPs(6), "AddressNotHeld 6"},
		"lost slot, refused, pods not listed":    {atRest(6, 4).lost(6).refused(6).podsPending(), ""},
		"withdrawn, of a pod":                    {atRest(6, 4).held(6).handshake(ReadyForRelease, 6).podIPs(6), "publish 6; unmark 6"},
		"ready, of a pod":                        {atRest(8, 4).releasing(ReadyForRelease, 7).podIPs(7), "publish 7; unmark 7"},
		"suspended, of a pod":                    {atRest(8, 4).suspended(7).podIPs(7), "publish 7"},
		"ready, not held, of a pod":              {atRest(6, 4).releasing(ReadyForRelease, 9).refused(9).podIPs(9), "unmark 9; AddressNotHeld 9"},
		"ready, not asked":                       {atRest(8, 4).releasing(ReadyForRelease, 7).unasked(7), "publish 7; unmark 7"},
		"withdrawn, not asked":                   {atRest(6, 4).held(6).handshake(ReadyForRelease, 6).unasked(6), "unmark 6"},
		"ready, not held, not asked":             {atRest(6, 4).releasing(ReadyForRelease, 9).refused(9).unasked(9), "unmark 9"},
		"killed after release, not asked":        {atRest(6, 4).handshake(ReadyForRelease, 6).unasked(6), "mark-released [10.0.0.7] of slot 0"},
		"excess, of a pod":                       {atRest(8, 4).excess(1).podIPs(7), "suspend 6"},
		"outside, not published":                 {atRest(6, 4).held(6).outside(6), "release 6"},
		"outside, not published, release failed": {atRest(6, 4).held(6).outside(6).releaseFailed(6), ""},
		"outside, new node": {
			held(0, 1, 2, 3).outside(0, 1, 2, 3),
			"release 0; release 1; release 2; release 3; acquire 4; acquire 5; acquire 6",
		},
		"outside, new node, pods": {
			held(0, 1, 2, 3).outside(0, 1, 2, 3).pods(1).podIPs(2),
			"release 0; release 1; release 3; acquire 4; acquire 5; acquire 6; AddressOutsideRange 2",
		},
		"outside, new node, first publication": {
			held(0, 1, 2, 3).outside(0).dual(0).pods(1).podIPs(0),
			"suspend 0; publish 1; publish 2; publish 3; acquire 4; acquire 5; AddressOutsideRange 0",
		},
		"outside, new node, many slots of pods": {
			held(0, 1, 2, 3, 4, 5).outside(0, 1, 2, 3).podIPs(0, 1, 2, 3),
			"acquire 6; AddressOutsideRange 0; AddressOutsideRange 1; AddressOutsideRange 2; AddressOutsideRange 3",
		},
		"outside, new node, max-allocate": {
			held(0, 1, 2, 3).outside(0, 1, 2, 3).podIPs(0, 1, 2, 3).with(func(f *fixture) { f.MaxAllocate = 4 }),
			"acquire 4; acquire 5; acquire 6; AddressOutsideRange 0; AddressOutsideRange 1; AddressOutsideRange 2; AddressOutsideRange 3",
		},
		"outside, new node, pods not listed": {
			held(0, 1).outside(0, 1).podIPs().podsPending(), "acquire 2; acquire 3; acquire 4",
		},
		"outside, published, of a pod": {atRest(7, 4).outside(6).pods(1).podIPs(6), "suspend 6; AddressOutsideRange 6"},
		"outside, free":                {atRest(7, 4).outside(6).with(func(f *fixture) { f.ReleaseExcess = false }), "suspend 6"},
		"outside, free, and needed":    {atRest(6, 4).outside(5).suspended(5), "mark-for-release ping; acquire 6"},
		"outside, ready": {
			atRest(7, 4).outside(6).releasing(ReadyForRelease, 6), "withdraw 6; release 6; mark-released 6",
		},
		"outside, do-not-release": {atRest(7, 4).outside(6).releasing(DoNotRelease, 6), "unmark 6"},
		"outside, used": {
			atRest(6, 4).outside(0, 1).handshake(MarkedForRelease, 1),
			"suspend 0; suspend 1; unmark 1; AddressOutsideRange 0; AddressOutsideRange 1",
		},
		"outside, used and suspended":  {atRest(6, 4).outside(0).suspended(0), "AddressOutsideRange 0"},
		"outside, used, not published": {atRest(6, 4).outside(0).withdrawn(0), "suspend 0; AddressOutsideRange 0"},
		"outside, another slot lost":   {atRest(6, 4).outside(0).used(9), "suspend 0; restore 9; AddressOutsideRange 0"},
		"in the ranges again":          {atRest(6, 4).suspended(0), "publish 0"},
		"no configuration":             {atRest(6, 4).held(6).unconfigured(), ""},
		"no configuration, new node":   {held(0, 1, 2, 3, 4).unconfigured(), ""},
		"two families, one ready": {
			atRest(8, 4).dual(7).releasing(ReadyForRelease, 7).with(func(f *fixture) {
				f.Pool[ipv6(7)], f.Handshakes[ipv6(7)] = EntryOf(7, true), MarkedForRelease
			}), "",
		},
		"two families, one do-not-release": {
			atRest(8, 4).dual(7).releasing(ReadyForRelease, 7).with(func(f *fixture) {
				f.Pool[ipv6(7)], f.Handshakes[ipv6(7)] = EntryOf(7, true), DoNotRelease
			}),
			"publish 7; publish 7/IPv6; unmark 7; unmark 7/IPv6",
		},
	} {
		t.Run(name, func(t *testing.T) {
			plan := tt.plan()
			var got []string
			for _, a := range plan.Actions() {
				got = append(got, text(a))
			}
			for _, r := range plan.Reports {
				got = append(got, fmt.Sprintf("%s %d", r.Reason, r.IP.As4()[3]-1))
			}
			if got := strings.Join(got, "; "); got != tt.want {
				t.Errorf("got\n  %s\nwant\n  %s", got, tt.want)
			}
		})
	}
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
			f := atRest(9, 4).pods(4).podIPs(3)
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

// The address of a family that the daemon has begun to serve is claimed.
func TestUnclaimed(t *testing.T) {
	for name, tt := range map[string]struct {
		*fixture
		want string
	}{
		"all":        {atRest(4, 1), "[0 1 3]"},
		"exhausted":  {atRest(4, 1).exhausted(), "[0 1 3]"},
		"refused":    {atRest(4, 1).with(func(f *fixture) { f.Refused[ipv6(0)] = true }), "[1 3]"},
		"outside":    {atRest(4, 1).outside(0), "[1 3]"},
		"no ranges":  {atRest(4, 1).with(func(f *fixture) { f.Slots[0].Unconfigured = true }), "[1 3]"},
		"in release": {atRest(4, 1).suspended(1), "[0 3]"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, n := range []int{0, 1, 3} {
				tt.Slots[n].Unclaimed = []netip.Addr{ipv6(n)}
			}
			var got []int
			for _, a := range New(tt.Observed, tt.Remembered, Settings{MinAllocate: 3}).Restore {
				if a.IPs[0] != ipv6(a.Slot) {
					t.Errorf("restores %v", a)
				}
				got = append(got, a.Slot)
			}
			if fmt.Sprint(got) != tt.want {
				t.Errorf("restores %v; want %s", got, tt.want)
			}
		})
	}
}
