package oracle_test

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/test/oracle"
)

const (
	routerID = "cilium-agent-router-1"
	healthID = "cilium-agent-health-2"
)

func addr(ip string) netip.Addr { return netip.MustParseAddr(ip) }

func handedOut(owner, ip, id string) oracle.Held {
	return oracle.Held{Lease: lease(ip, id), Owner: owner, Claimed: true}
}

func cooldown(owner, ip, id string) oracle.Held {
	return oracle.Held{Lease: lease(ip, id), Owner: owner}
}

func TestAHistoryIsJudgedByWhatIsSeenInTheEnd(t *testing.T) {
	const ip = "10.0.0.2"
	got := func(h *oracle.History) { h.Got("router", addr(ip)) }
	released := func(h *oracle.History) { got(h); h.Releasing(addr(ip)); h.Released("router", addr(ip)) }
	ours := []oracle.Lease{lease(ip, routerID)}
	listed := []oracle.Held{handedOut("router", ip, routerID)}

	tests := map[string]struct {
		told  func(*oracle.History)
		final oracle.Final
		want  oracle.Invariant
		says  string
	}{
		"nothing told and nothing held is right":    {},
		"told, listed and stored is right":          {told: got, final: oracle.Final{Stored: ours, Listed: listed}},
		"released and gone is right":                {told: released},
		"released and cooldown is right":            {told: released, final: oracle.Final{Stored: ours, Listed: []oracle.Held{cooldown("router", ip, routerID)}}},
		"held though no answer came is right":       {final: oracle.Final{Stored: ours, Listed: listed}},
		"a release without an answer: gone":         {told: func(h *oracle.History) { got(h); h.Releasing(addr(ip)) }},
		"a release without an answer: still held":   {told: func(h *oracle.History) { got(h); h.Releasing(addr(ip)) }, final: oracle.Final{Stored: ours, Listed: listed}},
		"asked for again without an answer":         {told: func(h *oracle.History) { released(h); h.Asking("router") }, final: oracle.Final{Stored: ours, Listed: listed}},
		"asked for again by somebody else":          {told: func(h *oracle.History) { released(h); h.Asking("health") }, final: oracle.Final{Stored: ours, Listed: listed}, want: oracle.StaysReleased, says: ip},
		"released by one and now of another":        {told: func(h *oracle.History) { released(h); h.Got("health", addr(ip)) }, final: oracle.Final{Stored: []oracle.Lease{lease(ip, healthID)}, Listed: []oracle.Held{handedOut("health", ip, healthID)}}},
		"released and handed to the same owner":     {told: func(h *oracle.History) { released(h); got(h) }, final: oracle.Final{Stored: ours, Listed: listed}},
		"a stranger's address is not ours to list":  {final: oracle.Final{Stored: []oracle.Lease{lease(ip, "pod")}}},
		"a destroyed record is not expected":        {told: func(h *oracle.History) { got(h); h.Forget("router", routerID) }, final: oracle.Final{Stored: ours}},
		"what a killed plugin took for nobody":      {told: got, final: oracle.Final{Unborn: []netip.Addr{addr(ip)}}},
		"another address than what is barred is":    {told: got, final: oracle.Final{Unborn: []netip.Addr{addr("10.0.0.3")}}, want: oracle.NothingLost, says: ip},
		"barred, and the owner has not asked again": {told: func(h *oracle.History) { h.Got("router", addr(ip), addr("fd00::2")) }, final: oracle.Final{Unborn: []netip.Addr{addr(ip)}}},
		"barred, and the owner was told another": {
			told:  func(h *oracle.History) { got(h); h.Got("router", addr("10.0.0.3")) },
			final: oracle.Final{Stored: []oracle.Lease{lease("10.0.0.3", routerID)}, Listed: []oracle.Held{handedOut("router", "10.0.0.3", routerID)}, Unborn: []netip.Addr{addr(ip)}},
		},
		"barred, told another, and its other family is gone": {
			told: func(h *oracle.History) {
				h.Got("router", addr(ip), addr("fd00::2"))
				h.Got("router", addr("10.0.0.3"), addr("fd00::2"))
			},
			final: oracle.Final{Stored: []oracle.Lease{lease("10.0.0.3", routerID)}, Listed: []oracle.Held{handedOut("router", "10.0.0.3", routerID)}, Unborn: []netip.Addr{addr(ip)}},
			want:  oracle.NothingLost, says: "fd00::2",
		},
		"barred, told another, and that is gone": {
			told:  func(h *oracle.History) { got(h); h.Got("router", addr("10.0.0.3")) },
			final: oracle.Final{Unborn: []netip.Addr{addr(ip)}}, want: oracle.NothingLost, says: "10.0.0.3",
		},
		"a leaked address":                          {final: oracle.Final{Stored: ours}, want: oracle.NoLeak, says: ip},
		"a lease under another ID of ours":          {told: got, final: oracle.Final{Stored: []oracle.Lease{lease(ip, healthID)}, Listed: listed}, want: oracle.NoDouble, says: healthID},
		"a lease under a stranger's ID":             {told: got, final: oracle.Final{Stored: []oracle.Lease{lease(ip, "pod")}, Listed: listed}, want: oracle.NoDouble, says: `"pod"`},
		"two attachments with one address":          {told: got, final: oracle.Final{Stored: ours, Listed: append(listed, handedOut("health", ip, healthID))}, want: oracle.NoDouble, says: "twice"},
		"an address handed to two":                  {told: func(h *oracle.History) { got(h); h.Got("health", addr(ip)) }, want: oracle.NoDouble, says: "while"},
		"what was told is not listed":               {told: got, want: oracle.NothingLost, says: ip},
		"what was told is cooldown":                 {told: got, final: oracle.Final{Stored: ours, Listed: []oracle.Held{cooldown("router", ip, routerID)}}, want: oracle.NothingLost, says: ip},
		"what was told is another owner's":          {told: got, final: oracle.Final{Stored: ours, Listed: []oracle.Held{handedOut("health", ip, routerID)}}, want: oracle.NothingLost, says: `"router"`},
		"what was told is another address":          {told: got, final: oracle.Final{Stored: []oracle.Lease{lease("10.0.0.3", routerID)}, Listed: []oracle.Held{handedOut("router", "10.0.0.3", routerID)}}, want: oracle.NothingLost, says: ip},
		"what was told is not in the store":         {told: got, final: oracle.Final{Listed: listed}, want: oracle.NothingLost, says: "store"},
		"what was released is handed out again":     {told: released, final: oracle.Final{Stored: ours, Listed: listed}, want: oracle.StaysReleased, says: ip},
		"a destroyed record whose owner asked is":   {told: func(h *oracle.History) { h.Forget("router", routerID); h.Got("router", addr("10.0.0.3")) }, final: oracle.Final{Stored: []oracle.Lease{lease(ip, routerID), lease("10.0.0.3", routerID)}, Listed: []oracle.Held{handedOut("router", "10.0.0.3", routerID)}}, want: oracle.NoLeak, says: ip},
		"another record than the destroyed one's":   {told: func(h *oracle.History) { h.Forget("health", healthID) }, final: oracle.Final{Stored: ours}, want: oracle.NoLeak, says: ip},
		"a lease of ours under another interface":   {final: oracle.Final{Stored: []oracle.Lease{{Network: "pods", IP: addr(ip), ContainerID: routerID, Interface: "eth1"}}, Listed: listed}, want: oracle.NoLeak, says: "eth1"},
		"an address told after a release is lost":   {told: func(h *oracle.History) { released(h); got(h) }, want: oracle.NothingLost, says: ip},
		"a second family that was told and is lost": {told: func(h *oracle.History) { got(h); h.Got("router", addr("fd00::2")) }, final: oracle.Final{Stored: ours, Listed: listed}, want: oracle.NothingLost, says: "fd00::2"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			h := oracle.NewHistory()
			if tt.told != nil {
				tt.told(h)
			}
			found := h.Judge(tt.final)
			if tt.want == "" {
				if len(found) > 0 {
					t.Errorf("got %v; want no violation", found)
				}
				return
			}
			for _, v := range found {
				if v.Invariant == tt.want && strings.Contains(v.Error(), tt.says) {
					return
				}
			}
			t.Errorf("got %v; want a violation of %q that says %q", found, tt.want, tt.says)
		})
	}
}

func TestARetryMustFindWhatIsHeld(t *testing.T) {
	before := oracle.Final{
		Listed: []oracle.Held{handedOut("router", "10.0.0.2", routerID), handedOut("health", "10.0.0.3", healthID), cooldown("router", "fd00::2", routerID)},
		Unborn: []netip.Addr{addr("10.0.0.3")},
	}
	if found := oracle.Retried("router", before, []netip.Addr{addr("10.0.0.2")}); len(found) > 0 {
		t.Errorf("got %v; want no violation", found)
	}
	found := oracle.Retried("router", before, []netip.Addr{addr("10.0.0.4")})
	if len(found) != 1 || found[0].Invariant != oracle.RetryFinds || !strings.Contains(found[0].What, "10.0.0.2") {
		t.Errorf("got %v; want one violation of %q", found, oracle.RetryFinds)
	}
	if found := oracle.Retried("health", before, []netip.Addr{addr("10.0.0.4")}); len(found) > 0 {
		t.Errorf("got %v; want no violation where a killed plugin bars the address", found)
	}
}

func TestAHistoryKnowsWhatAnOwnerHas(t *testing.T) {
	h := oracle.NewHistory()
	h.Got("router", addr("fd00::2"), addr("10.0.0.2"))
	h.Got("health", addr("10.0.0.3"))
	h.Released("router", addr("fd00::2"))
	if got := h.Has("router"); len(got) != 1 || got[0] != addr("10.0.0.2") {
		t.Errorf("router has %v; want 10.0.0.2", got)
	}
	h.Got("router", addr("10.0.0.4"))
	if got := h.Owners(); !slices.Equal(got, []string{"health", "router"}) {
		t.Errorf("the owners are %q; want health and router", got)
	}
}
