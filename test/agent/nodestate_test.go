package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/delegated-ipam/delegated-ipam/pkg/bridge/planner"
	"github.com/delegated-ipam/delegated-ipam/test/oracle"
)

// nodeState has the records of each component about the node's addresses.
type nodeState struct {
	// store has the addresses in host-local's lease files.
	store map[netip.Addr]bool
	// pool is spec.ipam.pool: the slot of each address.
	pool map[netip.Addr]int
	// cordoned has the addresses of the pool that the agent no longer allocates.
	cordoned map[netip.Addr]bool
	// used is status.ipam.used: the owner of each address.
	used map[netip.Addr]string
	// release is status.ipam.release-ips.
	release map[string]string
}

func (tb *testbed) nodeState(ctx context.Context) (nodeState, error) {
	node, err := tb.kube.ciliumNode(ctx)
	if err != nil {
		return nodeState{}, err
	}
	b, err := readNode(node)
	if err != nil {
		return nodeState{}, err
	}
	b.store, err = tb.hostLocalLeases()
	return b, err
}

// hostLocalLeases returns the addresses in host-local's lease files.
func (tb *testbed) hostLocalLeases() (map[netip.Addr]bool, error) {
	// A killed host-local may leave an empty lease file until its owner allocates again.
	leases, _, err := oracle.HostLocalAfterKill(tb.path("host-local"))
	held := map[netip.Addr]bool{}
	for _, lease := range leases {
		held[lease.IP] = true
	}
	return held, err
}

func readNode(node *unstructured.Unstructured) (nodeState, error) {
	b := nodeState{pool: map[netip.Addr]int{}, cordoned: map[netip.Addr]bool{}, used: map[netip.Addr]string{}}
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
		b.pool[ip], b.cordoned[ip] = slot, entry.Cordoned()
	}
	used, _, err := unstructured.NestedMap(node.Object, "status", "ipam", "used")
	errs = append(errs, err)
	for text, value := range used {
		ip, err := netip.ParseAddr(text)
		errs = append(errs, err)
		b.used[ip] = entryOf(value).Owner
	}
	b.release, _, err = unstructured.NestedStringMap(node.Object, "status", "ipam", "release-ips")
	return b, errors.Join(append(errs, err)...)
}

func entryOf(value any) planner.Entry {
	fields, _ := value.(map[string]any)
	owner, _ := fields["owner"].(string)
	resource, _ := fields["resource"].(string)
	return planner.Entry{Owner: owner, Resource: resource}
}

// slots returns the number of slots in the pool, and of those with a used address.
func (s nodeState) slots() (all, used int) {
	numbers, taken := map[int]bool{}, map[int]bool{}
	for ip, slot := range s.pool {
		numbers[slot] = true
		if s.used[ip] != "" {
			taken[slot] = true
		}
	}
	return len(numbers), len(taken)
}

// checkConsistent returns nil if all records agree and no address is in transition: host-local holds
// the addresses of the pool, which are the used ones and preAllocate free slots. The agent updates
// used asynchronously, so the caller gives the expected number.
func (s nodeState) checkConsistent(used int) error {
	var errs []error
	if len(s.used) != used {
		errs = append(errs, fmt.Errorf("%d addresses are used; want %d", len(s.used), used))
	}
	for ip := range s.pool {
		if !s.store[ip] {
			errs = append(errs, fmt.Errorf("%s is in the pool and has no lease of host-local", ip))
		}
		if s.cordoned[ip] {
			errs = append(errs, fmt.Errorf("%s is cordoned", ip))
		}
	}
	for ip := range s.store {
		if _, published := s.pool[ip]; !published {
			errs = append(errs, fmt.Errorf("%s has a lease of host-local and is not in the pool", ip))
		}
	}
	errs = append(errs, s.checkUsedInPool())
	if len(s.release) > 0 {
		errs = append(errs, fmt.Errorf("release handshakes are pending: %v", s.release))
	}
	if all, taken := s.slots(); all != taken+preAllocate {
		errs = append(errs, fmt.Errorf("%d slots are used and %d are in the pool; want %d more than used", taken, all, preAllocate))
	}
	return errors.Join(errs...)
}

// checkUsedInPool returns nil if every used address is in the pool. The agent drops an endpoint
// without an address in the pool at its next start.
func (s nodeState) checkUsedInPool() error {
	var errs []error
	for _, ip := range slices.SortedFunc(maps.Keys(s.used), netip.Addr.Compare) {
		if _, published := s.pool[ip]; !published {
			errs = append(errs, fmt.Errorf("%s is used by %q and is not in the pool", ip, s.used[ip]))
		}
	}
	return errors.Join(errs...)
}

// usedBy returns the used addresses of an owner.
func (s nodeState) usedBy(owner string) []netip.Addr {
	var ips []netip.Addr
	for ip, by := range s.used {
		if by == owner {
			ips = append(ips, ip)
		}
	}
	return ips
}
