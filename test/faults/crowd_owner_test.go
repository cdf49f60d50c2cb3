package faults

import (
	"net/netip"
	"sync"

	"github.com/delegated-ipam/delegated-ipam/test/oracle"
)

// owner is what the clients know together of one owner.
type owner struct {
	name string
	mu   sync.Mutex
	// certain are the addresses that it has whatever is under way, by family. Only
	// they are released: a release names no owner, and must not hit another's.
	certain [2]netip.Addr
	// releasing tells that a release of a family is under way; released is when the last one ended.
	releasing [2]bool
	released  [2]int64
}

// has is the address that the owner certainly has of a family.
func (o *owner) has(family int) netip.Addr {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.certain[family]
}

// got notes an answer with addresses. One that came while a release was under
// way may be of before it.
func (o *owner) got(op oracle.Op) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, ip := range op.IPs {
		if f := familyOf(ip); !o.releasing[f] && o.released[f] < op.Began {
			o.certain[f] = ip
		}
	}
}

// beginRelease returns an address to release, if the owner certainly has one.
func (o *owner) beginRelease(family int) (netip.Addr, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	ip := o.certain[family]
	if !ip.IsValid() {
		return ip, false
	}
	o.certain[family], o.releasing[family] = netip.Addr{}, true
	return ip, true
}

func (o *owner) endRelease(op oracle.Op) {
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
