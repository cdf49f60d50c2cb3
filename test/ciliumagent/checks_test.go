package ciliumagent

import (
	"maps"
	"net/netip"
	"testing"
)

// These tests show that the checks can fail.

func TestNodeStateCheck(t *testing.T) {
	a, b, foreign := netip.MustParseAddr("10.42.0.2"), netip.MustParseAddr("10.42.0.3"), netip.MustParseAddr("10.42.0.99")
	// One pod has a; the other slots are free.
	consistent := func() NodeState {
		l := NodeState{
			Store: map[netip.Addr]bool{}, Pool: map[netip.Addr]int{}, Suspended: map[netip.Addr]bool{},
			Used: map[netip.Addr]string{a: "default/a"}, Release: map[string]string{},
		}
		ip := a
		for slot := range 1 + PreAllocate {
			l.Store[ip], l.Pool[ip] = true, slot
			ip = ip.Next()
		}
		return l
	}
	if err := consistent().CheckConsistent(1); err != nil {
		t.Fatalf("consistent records: %v", err)
	}
	for name, spoil := range map[string]func(*NodeState){
		"pool address without lease":    func(l *NodeState) { delete(l.Store, b) },
		"lease outside the pool":        func(l *NodeState) { l.Store[foreign] = true },
		"used address outside the pool": func(l *NodeState) { delete(l.Pool, a) },
		"suspended address":             func(l *NodeState) { l.Suspended[b] = true },
		"pending handshake":             func(l *NodeState) { l.Release[b.String()] = "marked-for-release" },
		"one free slot too many":        func(l *NodeState) { l.Pool[foreign], l.Store[foreign] = 99, true },
		"one free slot too few":         func(l *NodeState) { delete(l.Pool, b); delete(l.Store, b) },
		"used address not recorded":     func(l *NodeState) { clear(l.Used) },
		"deleted pod still recorded":    func(l *NodeState) { maps.Copy(l.Used, map[netip.Addr]string{b: "default/b"}) },
	} {
		t.Run(name, func(t *testing.T) {
			l := consistent()
			spoil(&l)
			if l.CheckConsistent(1) == nil {
				t.Error("the inconsistency was not detected")
			}
		})
	}
}

func TestSharedAddresses(t *testing.T) {
	a, b := netip.MustParseAddr("10.42.0.2"), netip.MustParseAddr("fd00:42::2")
	if err := SharedAddresses([]Endpoint{{Pod: "one", IPs: []netip.Addr{a}}, {Pod: "two", IPs: []netip.Addr{b}}}); err != nil {
		t.Error(err)
	}
	if SharedAddresses([]Endpoint{{Pod: "one", IPs: []netip.Addr{a, b}}, {Pod: "two", IPs: []netip.Addr{b}}}) == nil {
		t.Errorf("%s belongs to two endpoints, which was not detected", b)
	}
}
