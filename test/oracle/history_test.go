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

func claimed(owner, ip, id string) oracle.Listed {
	return oracle.Listed{Lease: lease(ip, id), Owner: owner, Claimed: true}
}

func cooldown(owner, ip, id string) oracle.Listed {
	return oracle.Listed{Lease: lease(ip, id), Owner: owner}
}

func TestCheck(t *testing.T) {
	const ip = "10.0.0.2"
	got := func(h *oracle.History) { h.Allocated("router", addr(ip)) }
	released := func(h *oracle.History) { got(h); h.ReleaseRequested(addr(ip)); h.Released("router", addr(ip)) }
	ours := []oracle.Lease{lease(ip, routerID)}
	listed := []oracle.Listed{claimed("router", ip, routerID)}

	replaced := func(h *oracle.History) { got(h); h.Allocated("router", addr("10.0.0.3")) }
	another := []oracle.Lease{lease("10.0.0.3", routerID)}
	anotherListed := []oracle.Listed{claimed("router", "10.0.0.3", routerID)}
	orphaned := []netip.Addr{addr(ip)}
	gotAnother := oracle.Snapshot{Stored: another, Listed: anotherListed, Orphaned: orphaned}
	both := func(h *oracle.History) { h.Allocated("router", addr("fd00::2")); replaced(h) }
	tests := map[string]struct {
		setup func(*oracle.History)
		final oracle.Snapshot
		want  oracle.Invariant
		text  string
	}{
		"allocated, listed and stored":             {setup: got, final: oracle.Snapshot{Stored: ours, Listed: listed}},
		"released, in cooldown":                    {setup: released, final: oracle.Snapshot{Stored: ours, Listed: []oracle.Listed{cooldown("router", ip, routerID)}}},
		"held without a response":                  {final: oracle.Snapshot{Stored: ours, Listed: listed}},
		"unknown release: gone":                    {setup: func(h *oracle.History) { got(h); h.ReleaseRequested(addr(ip)) }},
		"unknown release: still held":              {setup: func(h *oracle.History) { got(h); h.ReleaseRequested(addr(ip)) }, final: oracle.Snapshot{Stored: ours, Listed: listed}},
		"unknown request after a release":          {setup: func(h *oracle.History) { released(h); h.Requested("router") }, final: oracle.Snapshot{Stored: ours, Listed: listed}},
		"request of another owner after a release": {setup: func(h *oracle.History) { released(h); h.Requested("health") }, final: oracle.Snapshot{Stored: ours, Listed: listed}, want: oracle.StaysReleased, text: ip},
		"released, then of another owner":          {setup: func(h *oracle.History) { released(h); h.Allocated("health", addr(ip)) }, final: oracle.Snapshot{Stored: []oracle.Lease{lease(ip, healthID)}, Listed: []oracle.Listed{claimed("health", ip, healthID)}}},
		"released, then of the same owner":         {setup: func(h *oracle.History) { released(h); got(h) }, final: oracle.Snapshot{Stored: ours, Listed: listed}},
		"lease of another client":                  {final: oracle.Snapshot{Stored: []oracle.Lease{lease(ip, "pod")}}},
		"destroyed record":                         {setup: func(h *oracle.History) { got(h); h.ForgetRecord("router", routerID) }, final: oracle.Snapshot{Stored: ours}},
		"orphaned address":                         {setup: got, final: oracle.Snapshot{Orphaned: orphaned}},
		"lost address beside an orphaned one":      {setup: got, final: oracle.Snapshot{Orphaned: []netip.Addr{addr("10.0.0.3")}}, want: oracle.NothingLost, text: ip},
		"orphaned, no further request":             {setup: func(h *oracle.History) { h.Allocated("router", addr(ip), addr("fd00::2")) }, final: oracle.Snapshot{Orphaned: orphaned}},
		"orphaned, replaced":                       {setup: replaced, final: gotAnother},
		"orphaned, replaced, other family lost":    {setup: both, final: gotAnother, want: oracle.NothingLost, text: "fd00::2"},
		"orphaned, replacement lost":               {setup: replaced, final: oracle.Snapshot{Orphaned: orphaned}, want: oracle.NothingLost, text: "10.0.0.3"},
		"leak":                                     {final: oracle.Snapshot{Stored: ours}, want: oracle.NoLeak, text: ip},
		"lease under another ID of ours":           {setup: got, final: oracle.Snapshot{Stored: []oracle.Lease{lease(ip, healthID)}, Listed: listed}, want: oracle.NoDouble, text: healthID},
		"lease under the ID of another client":     {setup: got, final: oracle.Snapshot{Stored: []oracle.Lease{lease(ip, "pod")}, Listed: listed}, want: oracle.NoDouble, text: `"pod"`},
		"two attachments with one address":         {setup: got, final: oracle.Snapshot{Stored: ours, Listed: append(listed, claimed("health", ip, healthID))}, want: oracle.NoDouble, text: "twice"},
		"two owners of one address":                {setup: func(h *oracle.History) { got(h); h.Allocated("health", addr(ip)) }, want: oracle.NoDouble, text: "while"},
		"lost: not listed":                         {setup: got, want: oracle.NothingLost, text: ip},
		"lost: in cooldown":                        {setup: got, final: oracle.Snapshot{Stored: ours, Listed: []oracle.Listed{cooldown("router", ip, routerID)}}, want: oracle.NothingLost, text: ip},
		"lost: of another owner":                   {setup: got, final: oracle.Snapshot{Stored: ours, Listed: []oracle.Listed{claimed("health", ip, routerID)}}, want: oracle.NothingLost, text: `"router"`},
		"lost: another address":                    {setup: got, final: oracle.Snapshot{Stored: another, Listed: anotherListed}, want: oracle.NothingLost, text: ip},
		"lost: not in the store":                   {setup: got, final: oracle.Snapshot{Listed: listed}, want: oracle.NothingLost, text: "store"},
		"claimed after its release":                {setup: released, final: oracle.Snapshot{Stored: ours, Listed: listed}, want: oracle.StaysReleased, text: ip},
		"lost after a destroyed record":            {setup: func(h *oracle.History) { h.ForgetRecord("router", routerID); h.Allocated("router", addr("10.0.0.3")) }, final: oracle.Snapshot{Stored: []oracle.Lease{lease(ip, routerID), lease("10.0.0.3", routerID)}, Listed: []oracle.Listed{claimed("router", "10.0.0.3", routerID)}}, want: oracle.NoLeak, text: ip},
		"leak beside a destroyed record":           {setup: func(h *oracle.History) { h.ForgetRecord("health", healthID) }, final: oracle.Snapshot{Stored: ours}, want: oracle.NoLeak, text: ip},
		"leak under another interface":             {final: oracle.Snapshot{Stored: []oracle.Lease{{Network: "pods", IP: addr(ip), ContainerID: routerID, Interface: "eth1"}}, Listed: listed}, want: oracle.NoLeak, text: "eth1"},
		"lost after release and request":           {setup: func(h *oracle.History) { released(h); got(h) }, want: oracle.NothingLost, text: ip},
		"second family lost":                       {setup: func(h *oracle.History) { got(h); h.Allocated("router", addr("fd00::2")) }, final: oracle.Snapshot{Stored: ours, Listed: listed}, want: oracle.NothingLost, text: "fd00::2"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			h := oracle.NewHistory()
			if tt.setup != nil {
				tt.setup(h)
			}
			found := h.Check(tt.final)
			matches := func(v oracle.Violation) bool { return v.Invariant == tt.want && strings.Contains(v.Error(), tt.text) }
			if tt.want == "" && len(found) > 0 || tt.want != "" && !slices.ContainsFunc(found, matches) {
				t.Errorf("got %v; want a violation of %q with %q", found, tt.want, tt.text)
			}
		})
	}
}

func TestCheckRetry(t *testing.T) {
	before := oracle.Snapshot{
		Listed:   []oracle.Listed{claimed("router", "10.0.0.2", routerID), claimed("health", "10.0.0.3", healthID), cooldown("router", "fd00::2", routerID)},
		Orphaned: []netip.Addr{addr("10.0.0.3")},
	}
	other := []netip.Addr{addr("10.0.0.4")}
	found := oracle.CheckRetry("router", before, []netip.Addr{addr("10.0.0.2")})
	if found = append(found, oracle.CheckRetry("health", before, other)...); len(found) > 0 {
		t.Errorf("got %v; want no violation for a held or an orphaned address", found)
	}
	found = oracle.CheckRetry("router", before, other)
	if len(found) != 1 || found[0].Invariant != oracle.RetryFinds || !strings.Contains(found[0].Details, "10.0.0.2") {
		t.Errorf("got %v; want one violation of %q", found, oracle.RetryFinds)
	}
}

func TestAddresses(t *testing.T) {
	h := oracle.NewHistory()
	h.Allocated("router", addr("fd00::2"), addr("10.0.0.2"))
	h.Allocated("health", addr("10.0.0.3"))
	h.Released("router", addr("fd00::2"))
	if got := h.Addresses("router"); len(got) != 1 || got[0] != addr("10.0.0.2") {
		t.Errorf("router has %v; want 10.0.0.2", got)
	}
	h.Allocated("router", addr("10.0.0.4"))
	if got := h.Owners(); !slices.Equal(got, []string{"health", "router"}) {
		t.Errorf("the owners are %q; want health and router", got)
	}
}
