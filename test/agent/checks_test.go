package agent

import (
	"maps"
	"net/netip"
	"testing"
)

// These tests need no agent. They show that the checks of the other tests can fail.

func TestNodeStateCheck(t *testing.T) {
	a, b, foreign := netip.MustParseAddr("10.42.0.2"), netip.MustParseAddr("10.42.0.3"), netip.MustParseAddr("10.42.0.99")
	// One pod has a; the other slots are free.
	consistent := func() nodeState {
		l := nodeState{
			store: map[netip.Addr]bool{}, pool: map[netip.Addr]int{}, cordoned: map[netip.Addr]bool{},
			used: map[netip.Addr]string{a: "default/a"}, release: map[string]string{},
		}
		ip := a
		for slot := range 1 + preAllocate {
			l.store[ip], l.pool[ip] = true, slot
			ip = ip.Next()
		}
		return l
	}
	if err := consistent().checkConsistent(1); err != nil {
		t.Fatalf("consistent records: %v", err)
	}
	for name, spoil := range map[string]func(*nodeState){
		"pool address without lease":    func(l *nodeState) { delete(l.store, b) },
		"lease outside the pool":        func(l *nodeState) { l.store[foreign] = true },
		"used address outside the pool": func(l *nodeState) { delete(l.pool, a) },
		"cordoned address":              func(l *nodeState) { l.cordoned[b] = true },
		"pending handshake":             func(l *nodeState) { l.release[b.String()] = "marked-for-release" },
		"one free slot too many":        func(l *nodeState) { l.pool[foreign], l.store[foreign] = 99, true },
		"one free slot too few":         func(l *nodeState) { delete(l.pool, b); delete(l.store, b) },
		"used address not recorded":     func(l *nodeState) { clear(l.used) },
		"deleted pod still recorded":    func(l *nodeState) { maps.Copy(l.used, map[netip.Addr]string{b: "default/b"}) },
	} {
		t.Run(name, func(t *testing.T) {
			l := consistent()
			spoil(&l)
			if l.checkConsistent(1) == nil {
				t.Error("the inconsistency was not detected")
			}
		})
	}
}

func TestSharedAddresses(t *testing.T) {
	a, b := netip.MustParseAddr("10.42.0.2"), netip.MustParseAddr("fd00:42::2")
	if err := sharedAddresses([]endpoint{{Pod: "one", IPs: []netip.Addr{a}}, {Pod: "two", IPs: []netip.Addr{b}}}); err != nil {
		t.Error(err)
	}
	if sharedAddresses([]endpoint{{Pod: "one", IPs: []netip.Addr{a, b}}, {Pod: "two", IPs: []netip.Addr{b}}}) == nil {
		t.Errorf("%s belongs to two endpoints, which was not detected", b)
	}
}
