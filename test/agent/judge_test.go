package agent

import (
	"maps"
	"net/netip"
	"testing"
)

// These need no agent: they show that the judges of the other tests can say no.

func TestNodeStateCheck(t *testing.T) {
	a, b, stranger := netip.MustParseAddr("10.42.0.2"), netip.MustParseAddr("10.42.0.3"), netip.MustParseAddr("10.42.0.99")
	// One pod has a; the other slots are free.
	agreeing := func() books {
		l := books{
			store: map[netip.Addr]bool{}, pool: map[netip.Addr]int{}, fenced: map[netip.Addr]bool{},
			used: map[netip.Addr]string{a: "default/a"}, release: map[string]string{},
		}
		ip := a
		for slot := range 1 + preAllocate {
			l.store[ip], l.pool[ip] = true, slot
			ip = ip.Next()
		}
		return l
	}
	if err := agreeing().settledWith(1); err != nil {
		t.Fatalf("books that agree do not: %v", err)
	}
	for name, spoil := range map[string]func(*books){
		"an address of the pool is not held":           func(l *books) { delete(l.store, b) },
		"an address is held and not in the pool":       func(l *books) { l.store[stranger] = true },
		"a used address is not in the pool":            func(l *books) { delete(l.pool, a) },
		"an address is on its way back":                func(l *books) { l.fenced[b] = true },
		"a handshake is under way":                     func(l *books) { l.release[b.String()] = "marked-for-release" },
		"a slot too many is free":                      func(l *books) { l.pool[stranger], l.store[stranger] = 99, true },
		"a slot too few is free":                       func(l *books) { delete(l.pool, b); delete(l.store, b) },
		"the agent has not written all that it uses":   func(l *books) { clear(l.used) },
		"the agent has not noticed that a pod is gone": func(l *books) { maps.Copy(l.used, map[netip.Addr]string{b: "default/b"}) },
	} {
		t.Run(name, func(t *testing.T) {
			l := agreeing()
			spoil(&l)
			if l.settledWith(1) == nil {
				t.Error("these books are said to agree")
			}
		})
	}
}

func TestSharedAddresses(t *testing.T) {
	a, b := netip.MustParseAddr("10.42.0.2"), netip.MustParseAddr("fd00:42::2")
	if err := shared([]endpoint{{Pod: "one", IPs: []netip.Addr{a}}, {Pod: "two", IPs: []netip.Addr{b}}}); err != nil {
		t.Error(err)
	}
	if shared([]endpoint{{Pod: "one", IPs: []netip.Addr{a, b}}, {Pod: "two", IPs: []netip.Addr{b}}}) == nil {
		t.Errorf("%s is of two endpoints, and nobody sees it", b)
	}
}
