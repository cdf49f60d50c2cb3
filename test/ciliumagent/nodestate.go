package ciliumagent

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/delegated-ipam/delegated-ipam/internal/bridge/planner"
)

// PreAllocate is the bridge's number of free slots, unless the range is the node's own.
const PreAllocate = 8

// NodeState has the records of each component about the node's addresses.
type NodeState struct {
	// Store has the addresses in host-local's lease files.
	Store map[netip.Addr]bool
	// Pool is spec.ipam.pool: the slot of each address.
	Pool map[netip.Addr]int
	// Suspended has the addresses of the pool that the agent no longer allocates.
	Suspended map[netip.Addr]bool
	// Used is status.ipam.used: the owner of each address.
	Used map[netip.Addr]string
	// Release is status.ipam.release-ips.
	Release map[string]string
}

// ReadNode reads pool and status of a CiliumNode. The caller sets Store.
func ReadNode(node *unstructured.Unstructured) (NodeState, error) {
	b := NodeState{Pool: map[netip.Addr]int{}, Suspended: map[netip.Addr]bool{}, Used: map[netip.Addr]string{}}
	var errs []error
	pool, _, err := unstructured.NestedMap(node.Object, "spec", "ipam", "pool")
	errs = append(errs, err)
	for text, value := range pool {
		ip, err := netip.ParseAddr(text)
		entry := entryOf(value)
		slot, ours := entry.Slot()
		if err != nil || !ours {
			errs = append(errs, fmt.Errorf("the entry %q of the pool is not the bridge's: %v (%w)", text, value, err))
		}
		b.Pool[ip], b.Suspended[ip] = slot, entry.Suspended()
	}
	used, _, err := unstructured.NestedMap(node.Object, "status", "ipam", "used")
	errs = append(errs, err)
	for text, value := range used {
		ip, err := netip.ParseAddr(text)
		errs = append(errs, err)
		b.Used[ip] = entryOf(value).Owner
	}
	b.Release, _, err = unstructured.NestedStringMap(node.Object, "status", "ipam", "release-ips")
	return b, errors.Join(append(errs, err)...)
}

func entryOf(value any) planner.Entry {
	fields, _ := value.(map[string]any)
	owner, _ := fields["owner"].(string)
	resource, _ := fields["resource"].(string)
	return planner.Entry{Owner: owner, Resource: resource}
}

// slots returns the number of slots in the pool, and of those with a used address.
func (s NodeState) slots() (all, used int) {
	numbers, taken := map[int]bool{}, map[int]bool{}
	for ip, slot := range s.Pool {
		numbers[slot] = true
		if s.Used[ip] != "" {
			taken[slot] = true
		}
	}
	return len(numbers), len(taken)
}

// CheckConsistent returns nil if all records agree and no address is in transition: as CheckAtRest, and
// the pool has PreAllocate free slots.
func (s NodeState) CheckConsistent(used int) error {
	_, taken := s.slots()
	return s.CheckAtRest(used, taken+PreAllocate)
}

// CheckAtRest returns nil if all records agree and no address is in transition: as CheckRecords, but
// none is being released, and the pool has a number of slots.
func (s NodeState) CheckAtRest(used, slots int) error {
	errs := []error{s.CheckRecords(used)}
	for ip, suspended := range s.Suspended {
		if suspended {
			errs = append(errs, fmt.Errorf("%s is suspended", ip))
		}
	}
	if len(s.Release) > 0 {
		errs = append(errs, fmt.Errorf("release handshakes are pending: %v", s.Release))
	}
	if all, taken := s.slots(); all != slots {
		errs = append(errs, fmt.Errorf("%d slots are used and %d are in the pool; want %d in the pool", taken, all, slots))
	}
	return errors.Join(errs...)
}

// CheckRecords returns nil if all records agree: host-local holds the addresses of the pool, which
// contain the used ones, and otherwise those that are being released. The agent updates used
// asynchronously, so the caller gives the expected number.
func (s NodeState) CheckRecords(used int) error {
	var errs []error
	if len(s.Used) != used {
		errs = append(errs, fmt.Errorf("%d addresses are used; want %d", len(s.Used), used))
	}
	for ip := range s.Pool {
		if !s.Store[ip] {
			errs = append(errs, fmt.Errorf("%s is in the pool and has no lease of host-local", ip))
		}
	}
	for ip := range s.Store {
		if _, published := s.Pool[ip]; !published && s.Release[ip.String()] == "" {
			errs = append(errs, fmt.Errorf("%s has a lease of host-local and is neither in the pool nor being released", ip))
		}
	}
	return errors.Join(append(errs, s.CheckUsedInPool())...)
}

// CheckUsedInPool returns nil if every used address is in the pool. The agent drops an endpoint
// without an address in the pool at its next start.
func (s NodeState) CheckUsedInPool() error {
	var errs []error
	for _, ip := range slices.SortedFunc(maps.Keys(s.Used), netip.Addr.Compare) {
		if _, published := s.Pool[ip]; !published {
			errs = append(errs, fmt.Errorf("%s is used by %q and is not in the pool", ip, s.Used[ip]))
		}
	}
	return errors.Join(errs...)
}

// UsedBy returns the used addresses of an owner.
func (s NodeState) UsedBy(owner string) []netip.Addr {
	var ips []netip.Addr
	for ip, by := range s.Used {
		if by == owner {
			ips = append(ips, ip)
		}
	}
	return ips
}
