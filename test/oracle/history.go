package oracle

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
)

// oursPrefix begins every container ID that the daemon makes (docs/design/how-it-works.md, Identity).
const oursPrefix = "cilium-agent-"

// Invariant is a promise of docs/design/reliability.md.
type Invariant string

// The invariants. Each holds once recovery has settled.
const (
	// NoLeak: each address that the plugin holds under one of our IDs is in the list.
	NoLeak Invariant = "no leak"
	// NoDouble: no address is in two attachments or was allocated to two owners, and no listed
	// address has another ID in the plugin's store.
	NoDouble Invariant = "no double"
	// NothingLost: an address that was allocated with success and not released is still held by
	// its owner, in the list and in the plugin's store.
	NothingLost Invariant = "nothing acknowledged is lost"
	// StaysReleased: a released address is not claimed by its former owner.
	StaysReleased Invariant = "released stays released"
	// RetryFinds: an owner that repeats its request gets the addresses that it holds.
	RetryFinds Invariant = "a retry finds what is held"
)

// Violation is an invariant that does not hold, as an error of a test.
type Violation struct {
	Invariant Invariant
	// Details names the owner, the address and its holder.
	Details string
}

// Error returns the invariant and the details.
func (v Violation) Error() string { return fmt.Sprintf("%s: %s", v.Invariant, v.Details) }

// Listed is one address in the daemon's list.
type Listed struct {
	Lease
	Owner string
	// Claimed is set if the address was allocated and not released.
	Claimed bool
}

// Snapshot is the state that is visible from outside once recovery has settled.
type Snapshot struct {
	// Stored are all leases in the plugin's store, of other clients too.
	Stored []Lease
	// Listed are the addresses in the daemon's list.
	Listed []Listed
	// Orphaned are addresses that a killed plugin reserved without an ID (HostLocalAfterKill). An owner
	// that held one cannot get it back: its next request gets another address. Until then
	// NothingLost does not hold for that owner, and afterwards not for that address.
	Orphaned []netip.Addr
}

// History is the responses that clients got, by owner and address. Its methods may be called
// concurrently.
type History struct {
	mu sync.Mutex
	// owners are the owners of addresses that were allocated and not released.
	owners map[netip.Addr]string
	// released are addresses with the owners that released them.
	released map[netip.Addr]map[string]bool
	// replaced are addresses whose owner got another one of the family since.
	replaced map[netip.Addr]bool
	// forgotten are the container IDs, by owner, of records that a test destroyed.
	forgotten map[string]string
	found     violations
}

// NewHistory returns a history without responses.
func NewHistory() *History {
	return &History{
		owners: map[netip.Addr]string{}, released: map[netip.Addr]map[string]bool{},
		replaced: map[netip.Addr]bool{}, forgotten: map[string]string{},
	}
}

// Allocated records addresses in a response to an owner. One that another owner holds is a violation.
func (h *History) Allocated(owner string, ips ...netip.Addr) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, ip := range ips {
		if other, ok := h.owners[ip]; ok && other != owner {
			h.found.add(NoDouble, "%s was allocated to %q while %q held it", ip, owner, other)
		}
		for other, of := range h.owners {
			if of == owner && other.Is4() == ip.Is4() {
				h.replaced[other] = true
			}
		}
		delete(h.replaced, ip)
		h.owners[ip] = owner
		delete(h.released[ip], owner)
	}
	delete(h.forgotten, owner)
}

// Requested records a request for an owner's addresses before it is sent. Until its response,
// released addresses may be held for the owner again.
func (h *History) Requested(owner string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, owners := range h.released {
		delete(owners, owner)
	}
}

// ReleaseRequested records a release before it is sent. Until its response the addresses may be held or
// not.
func (h *History) ReleaseRequested(ips ...netip.Addr) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, ip := range ips {
		delete(h.owners, ip)
	}
}

// Released records that an owner's addresses were released, expired or retired.
func (h *History) Released(owner string, ips ...netip.Addr) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, ip := range ips {
		delete(h.owners, ip)
		if h.released[ip] == nil {
			h.released[ip] = map[string]bool{}
		}
		h.released[ip][owner] = true
	}
}

// ForgetRecord records that the test destroyed a record, whose addresses are unknown until a request.
func (h *History) ForgetRecord(owner, containerID string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	maps.DeleteFunc(h.owners, func(_ netip.Addr, of string) bool { return of == owner })
	h.forgotten[owner] = containerID
}

// Owners returns the owners that hold addresses, sorted.
func (h *History) Owners() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Compact(slices.Sorted(maps.Values(h.owners)))
}

// OwnerOf returns the owner that holds an address; empty if there is none.
func (h *History) OwnerOf(ip netip.Addr) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.owners[ip]
}

// Addresses returns the addresses that an owner holds, sorted.
func (h *History) Addresses(owner string) []netip.Addr {
	h.mu.Lock()
	defer h.mu.Unlock()
	var ips []netip.Addr
	for ip, of := range h.owners {
		if of == owner {
			ips = append(ips, ip)
		}
	}
	slices.SortFunc(ips, netip.Addr.Compare)
	return ips
}

// violations collects violations.
type violations []Violation

func (v *violations) add(i Invariant, format string, args ...any) {
	*v = append(*v, Violation{i, fmt.Sprintf(format, args...)})
}

// Check returns every violation in a final state.
func (h *History) Check(f Snapshot) []Violation {
	h.mu.Lock()
	defer h.mu.Unlock()
	found := slices.Clone(h.found)
	for _, l := range f.Stored {
		listed := slices.ContainsFunc(f.Listed, func(a Listed) bool { return a.Lease == l })
		forgotten := slices.Contains(slices.Collect(maps.Values(h.forgotten)), l.ContainerID)
		if strings.HasPrefix(l.ContainerID, oursPrefix) && !listed && !forgotten {
			found.add(NoLeak, "only the plugin's store has %s", l)
		}
	}
	listed := make([]Lease, len(f.Listed))
	for i, a := range f.Listed {
		listed[i] = a.Lease
		for _, l := range f.Stored {
			if l.Network == a.Network && l.IP == a.IP && l.ContainerID != a.ContainerID {
				found.add(NoDouble, "the list has %s of %q, the plugin's store has it under %q", a.Lease, a.Owner, l.ContainerID)
			}
		}
		if a.Claimed && h.released[a.IP][a.Owner] {
			found.add(StaysReleased, "%s is claimed by %q, which released it", a.IP, a.Owner)
		}
	}
	for _, err := range append(duplicates("the plugin's store", f.Stored), duplicates("the daemon's list", listed)...) {
		found.add(NoDouble, "%v", err)
	}
	return append(found, h.losses(f)...)
}

func (h *History) losses(f Snapshot) (found violations) {
	// Owners of orphaned addresses that have not got others yet.
	waiting := map[string]bool{}
	for _, ip := range f.Orphaned {
		if owner, ok := h.owners[ip]; ok && !h.replaced[ip] {
			waiting[owner] = true
		}
	}
	for ip, owner := range h.owners {
		if waiting[owner] || slices.Contains(f.Orphaned, ip) {
			continue
		}
		i := slices.IndexFunc(f.Listed, func(a Listed) bool { return a.IP == ip && a.Owner == owner && a.Claimed })
		switch {
		case i < 0:
			found.add(NothingLost, "%s of %q is not claimed in the list", ip, owner)
		case !slices.Contains(f.Stored, f.Listed[i].Lease):
			found.add(NothingLost, "the plugin's store does not have %s of %q", f.Listed[i].Lease, owner)
		}
	}
	return found
}

// CheckRetry checks the response to an owner that repeated its request for all families: it must
// have every address that was held for the owner before.
func CheckRetry(owner string, before Snapshot, answer []netip.Addr) []Violation {
	var found violations
	for _, a := range before.Listed {
		if a.Owner == owner && a.Claimed && !slices.Contains(answer, a.IP) && !slices.Contains(before.Orphaned, a.IP) {
			found.add(RetryFinds, "%s was held for %q, which repeated its request and got %v", a.IP, owner, answer)
		}
	}
	return found
}
