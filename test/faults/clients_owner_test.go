package faults

import (
	"net/netip"
	"sync"

	"github.com/delegated-ipam/delegated-ipam/test/oracle"
)

// sharedOwner is the knowledge of all clients about one owner.
type sharedOwner struct {
	name string
	mu   sync.Mutex
	// held has the addresses, by family, that it holds regardless of the outcome of pending
	// requests. Only they are released, because a release does not name an owner.
	held [2]netip.Addr
	// releasing means that a release of a family is pending; released is when the last one ended.
	releasing [2]bool
	released  [2]int64
}

// address returns the address of a family that the owner certainly holds.
func (o *sharedOwner) address(family int) netip.Addr {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.held[family]
}

// recordResponse records the addresses of an operation. During a release they may be older.
func (o *sharedOwner) recordResponse(op oracle.Op) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, ip := range op.IPs {
		if f := familyOf(ip); !o.releasing[f] && o.released[f] < op.Began {
			o.held[f] = ip
		}
	}
}

// beginRelease returns an address to release, if the owner certainly holds one.
func (o *sharedOwner) beginRelease(family int) (netip.Addr, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	ip := o.held[family]
	if !ip.IsValid() {
		return ip, false
	}
	o.held[family], o.releasing[family] = netip.Addr{}, true
	return ip, true
}

func (o *sharedOwner) endRelease(op oracle.Op) {
	o.mu.Lock()
	defer o.mu.Unlock()
	f := familyOf(op.IPs[0])
	o.releasing[f], o.released[f] = false, op.Ended
}

func familyOf(ip netip.Addr) int {
	if ip.Is4() {
		return 0
	}
	return 1
}
