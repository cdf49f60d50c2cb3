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

// books are what each party has written down of the node's addresses.
type books struct {
	// store is what host-local holds, by its files.
	store map[netip.Addr]bool
	// pool is spec.ipam.pool: the slot of each address.
	pool map[netip.Addr]int
	// fenced are those of the pool that the agent hands out no more.
	fenced map[netip.Addr]bool
	// used is status.ipam.used: the owner of each address.
	used map[netip.Addr]string
	// release is status.ipam.release-ips.
	release map[string]string
}

func (l *lab) books(ctx context.Context) (books, error) {
	node, err := l.kube.ciliumNode(ctx)
	if err != nil {
		return books{}, err
	}
	b, err := readNode(node)
	if err != nil {
		return books{}, err
	}
	b.store, err = l.store()
	return b, err
}

// store is what host-local holds.
func (l *lab) store() (map[netip.Addr]bool, error) {
	// A killed host-local may leave a file without a holder behind, until its owner asks again.
	leases, _, err := oracle.HostLocalKilled(l.path("host-local"))
	held := map[netip.Addr]bool{}
	for _, lease := range leases {
		held[lease.IP] = true
	}
	return held, err
}

func readNode(node *unstructured.Unstructured) (books, error) {
	b := books{pool: map[netip.Addr]int{}, fenced: map[netip.Addr]bool{}, used: map[netip.Addr]string{}}
	var errs []error
	pool, _, err := unstructured.NestedMap(node.Object, "spec", "ipam", "pool")
	errs = append(errs, err)
	for text, value := range pool {
		ip, err := netip.ParseAddr(text)
		entry := entryOf(value)
		slot, ours := entry.Slot()
		if err != nil || !ours {
			errs = append(errs, fmt.Errorf("the pool has %q: %v, which is not the bridge's (%w)", text, value, err))
		}
		b.pool[ip], b.fenced[ip] = slot, entry.Cordoned()
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

// slots counts the slots of the pool, and those of which an address is used.
func (b books) slots() (all, used int) {
	numbers, taken := map[int]bool{}, map[int]bool{}
	for ip, slot := range b.pool {
		numbers[slot] = true
		if b.used[ip] != "" {
			taken[slot] = true
		}
	}
	return len(numbers), len(taken)
}

// settledWith is nil if all agree and nothing is on its way: host-local holds
// what is in the pool, and that is what is used and as much as is wanted free. The
// agent writes what it uses a while after it does; so the caller says how much.
func (b books) settledWith(used int) error {
	var errs []error
	if len(b.used) != used {
		errs = append(errs, fmt.Errorf("%d addresses are used; want %d", len(b.used), used))
	}
	for ip := range b.pool {
		if !b.store[ip] {
			errs = append(errs, fmt.Errorf("%s is in the pool, and host-local does not hold it", ip))
		}
		if b.fenced[ip] {
			errs = append(errs, fmt.Errorf("%s is on its way back", ip))
		}
	}
	for ip := range b.store {
		if _, published := b.pool[ip]; !published {
			errs = append(errs, fmt.Errorf("%s is held by host-local, and is not in the pool", ip))
		}
	}
	errs = append(errs, b.usedIsPublished())
	if len(b.release) > 0 {
		errs = append(errs, fmt.Errorf("handshakes are under way: %v", b.release))
	}
	if all, taken := b.slots(); all != taken+preAllocate {
		errs = append(errs, fmt.Errorf("%d slots are used and %d are in the pool; want %d more than used", taken, all, preAllocate))
	}
	return errors.Join(errs...)
}

// usedIsPublished is nil if every used address is in the pool: the agent drops
// an endpoint whose address is not when it starts the next time.
func (b books) usedIsPublished() error {
	var errs []error
	for _, ip := range slices.SortedFunc(maps.Keys(b.used), netip.Addr.Compare) {
		if _, published := b.pool[ip]; !published {
			errs = append(errs, fmt.Errorf("%s is used by %q, and is not in the pool", ip, b.used[ip]))
		}
	}
	return errors.Join(errs...)
}

// of are the used addresses of an owner.
func (b books) of(owner string) []netip.Addr {
	var ips []netip.Addr
	for ip, by := range b.used {
		if by == owner {
			ips = append(ips, ip)
		}
	}
	return ips
}
