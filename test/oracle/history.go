package oracle

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
)

// oursPrefix begins every container ID that the sidecar makes (docs/how-it-works.md, Identity).
const oursPrefix = "cilium-agent-"

// Invariant is one of the promises of docs/reliability.md.
type Invariant string

// The invariants. Each is to hold once recovery has settled.
const (
	// NoLeak: each address that the plugin holds under an ID of ours is in the list.
	NoLeak Invariant = "no leak"
	// NoDouble: no address is in two attachments or was handed to two owners, and
	// none of ours is under another ID in the plugin's store.
	NoDouble Invariant = "no double"
	// NothingLost: what was answered with success and not given back is still held
	// by its owner, in the list and in the plugin's store.
	NothingLost Invariant = "nothing acknowledged is lost"
	// StaysReleased: what was given back is not handed out to that owner any more.
	StaysReleased Invariant = "released stays released"
	// RetryFinds: who asks again gets what is held for it.
	RetryFinds Invariant = "a retry finds what is held"
)

// Violation is an invariant that does not hold.
type Violation struct {
	Invariant Invariant
	// What names owner, address and holder.
	What string
}

// Error makes a violation an error of the test.
func (v Violation) Error() string { return fmt.Sprintf("%s: %s", v.Invariant, v.What) }

// Held is one address in the sidecar's list.
type Held struct {
	Lease
	Owner string
	// Claimed tells that the address is handed out and not taken back.
	Claimed bool
}

// Final is what is seen from outside once recovery has settled.
type Final struct {
	// Stored are the leases in the plugin's own store, strangers' too.
	Stored []Lease
	// Listed are the addresses in the sidecar's list.
	Listed []Held
	// Unborn are addresses that a killed plugin took for nobody (HostLocalKilled).
	// An owner that had one of them cannot get it back. It is told another one when
	// it asks again; until then no promise of losing nothing is kept to it, and from
	// then on only that one address may be lost.
	Unborn []netip.Addr
}

// History is what clients were told, by owner and address. Its methods may be
// called at the same time.
type History struct {
	mu sync.Mutex
	// has are the owners of what was answered with success and not given back.
	has map[netip.Addr]string
	// returned are addresses and the owners who gave them back.
	returned map[netip.Addr]map[string]bool
	// replaced are addresses whose owner was told another one of the family since.
	replaced map[netip.Addr]bool
	// forgotten are the container IDs, by owner, whose records a test destroyed.
	forgotten map[string]string
	seen      []Violation
}

// NewHistory returns a history in which nobody was told anything.
func NewHistory() *History {
	return &History{
		has: map[netip.Addr]string{}, returned: map[netip.Addr]map[string]bool{},
		replaced: map[netip.Addr]bool{}, forgotten: map[string]string{},
	}
}

// Got notes an answer of success that gave addresses to an owner. One that
// another owner has is a violation at once.
func (h *History) Got(owner string, ips ...netip.Addr) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, ip := range ips {
		if other, ok := h.has[ip]; ok && other != owner {
			h.seen = append(h.seen, Violation{NoDouble, fmt.Sprintf("%s was handed to %q while %q has it", ip, owner, other)})
		}
		h.replace(owner, ip)
		h.has[ip] = owner
		delete(h.returned[ip], owner)
	}
	delete(h.forgotten, owner)
}

// replace notes that an owner is told an address in the place of any other of the family.
func (h *History) replace(owner string, ip netip.Addr) {
	for other, of := range h.has {
		if of == owner && other.Is4() == ip.Is4() {
			h.replaced[other] = true
		}
	}
	delete(h.replaced, ip)
}

// Asking notes a request for an owner's addresses that was sent. Until its answer
// comes, what the owner gave back before may be held for it again.
func (h *History) Asking(owner string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, owners := range h.returned {
		delete(owners, owner)
	}
}

// Releasing notes a release that was sent. Until its answer comes the address may
// be held or not.
func (h *History) Releasing(ips ...netip.Addr) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, ip := range ips {
		delete(h.has, ip)
	}
}

// Released notes that an owner's addresses were given back: a release that was
// answered with success, or an owner that has expired or retired.
func (h *History) Released(owner string, ips ...netip.Addr) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, ip := range ips {
		delete(h.has, ip)
		if h.returned[ip] == nil {
			h.returned[ip] = map[string]bool{}
		}
		h.returned[ip][owner] = true
	}
}

// Forget notes that the test destroyed an owner's record. What it held is known
// to nobody, and not expected, until the owner asks again.
func (h *History) Forget(owner, containerID string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	maps.DeleteFunc(h.has, func(_ netip.Addr, of string) bool { return of == owner })
	h.forgotten[owner] = containerID
}

// Owners returns those who were told to have something and have not given it back, sorted.
func (h *History) Owners() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Compact(slices.Sorted(maps.Values(h.has)))
}

// OwnerOf returns who was told to have an address and has not given it back; empty
// if nobody was.
func (h *History) OwnerOf(ip netip.Addr) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.has[ip]
}

// Has returns what an owner was told to have and has not given back, sorted.
func (h *History) Has(owner string) []netip.Addr {
	h.mu.Lock()
	defer h.mu.Unlock()
	var ips []netip.Addr
	for ip, of := range h.has {
		if of == owner {
			ips = append(ips, ip)
		}
	}
	slices.SortFunc(ips, netip.Addr.Compare)
	return ips
}

// Judge returns every invariant that does not hold in what is seen now.
func (h *History) Judge(f Final) []Violation {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Concat(h.seen, h.leaks(f), doubles(f), h.losses(f), h.comebacks(f))
}

func (h *History) leaks(f Final) []Violation {
	var found []Violation
	for _, l := range f.Stored {
		listed := slices.ContainsFunc(f.Listed, func(a Held) bool { return a.Lease == l })
		forgotten := slices.Contains(slices.Collect(maps.Values(h.forgotten)), l.ContainerID)
		if strings.HasPrefix(l.ContainerID, oursPrefix) && !listed && !forgotten {
			found = append(found, Violation{NoLeak, fmt.Sprintf("only the plugin's store has %s", l)})
		}
	}
	return found
}

func doubles(f Final) []Violation {
	var found []Violation
	listed := make([]Lease, len(f.Listed))
	for i, a := range f.Listed {
		listed[i] = a.Lease
		for _, l := range f.Stored {
			if l.Network == a.Network && l.IP == a.IP && l.ContainerID != a.ContainerID {
				found = append(found, Violation{NoDouble, fmt.Sprintf("the list has %s of %q, the plugin's store has it under %q", a.Lease, a.Owner, l.ContainerID)})
			}
		}
	}
	for _, err := range append(repeated("the plugin's store", f.Stored), repeated("the sidecar's list", listed)...) {
		found = append(found, Violation{NoDouble, err.Error()})
	}
	return found
}

func (h *History) losses(f Final) []Violation {
	var found []Violation
	barred := h.barred(f.Unborn)
	for ip, owner := range h.has {
		if barred[owner] || slices.Contains(f.Unborn, ip) {
			continue
		}
		i := slices.IndexFunc(f.Listed, func(a Held) bool { return a.IP == ip && a.Owner == owner && a.Claimed })
		switch {
		case i < 0:
			found = append(found, Violation{NothingLost, fmt.Sprintf("%s of %q is not handed out in the list", ip, owner)})
		case !slices.Contains(f.Stored, f.Listed[i].Lease):
			found = append(found, Violation{NothingLost, fmt.Sprintf("the plugin's store does not have %s of %q", f.Listed[i].Lease, owner)})
		}
	}
	return found
}

// barred are the owners of addresses that a killed plugin took for nobody, as long
// as they were not told others.
func (h *History) barred(unborn []netip.Addr) map[string]bool {
	owners := map[string]bool{}
	for _, ip := range unborn {
		if owner, ok := h.has[ip]; ok && !h.replaced[ip] {
			owners[owner] = true
		}
	}
	return owners
}

func (h *History) comebacks(f Final) []Violation {
	var found []Violation
	for _, a := range f.Listed {
		if a.Claimed && h.returned[a.IP][a.Owner] {
			found = append(found, Violation{StaysReleased, fmt.Sprintf("%s is handed out to %q, who gave it back", a.IP, a.Owner)})
		}
	}
	return found
}

// Retried judges the answer to an owner that asked again for everything, given
// what was seen before: all that was held for it must be in the answer.
func Retried(owner string, before Final, answer []netip.Addr) []Violation {
	held := slices.DeleteFunc(slices.Clone(before.Listed), func(a Held) bool { return a.Owner != owner })
	var found []Violation
	for _, a := range held {
		if a.Claimed && !slices.Contains(answer, a.IP) && !slices.Contains(before.Unborn, a.IP) {
			found = append(found, Violation{RetryFinds, fmt.Sprintf("%s was held for %q, which asked again and got %v", a.IP, owner, answer)})
		}
	}
	return found
}
