package audit

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/delegated-ipam/delegated-ipam/internal/bridge/ciliumnode"
)

// State describes the holders of an address. Its values do not change between versions.
type State string

// The states.
const (
	// Held: one pool has the address, and no other node uses it.
	Held State = "held"
	// Conflict: several nodes have the address in their pools or use it, or a node uses it without
	// having it in its pool.
	Conflict State = "conflict"
	// Free: no pool has the address, and no node uses it.
	Free State = "not-held"
)

// Range is a pod CIDR of a node.
type Range struct {
	Node string `json:"node"`
	// CIDR is as the Node has it, such as "10.1.2.0/24".
	CIDR string `json:"cidr"`
}

// Answer is the result for one address.
type Answer struct {
	Address netip.Addr `json:"address"`
	State   State      `json:"state"`
	// Holders are the nodes that have it in their pool or use it, by name. It is never nil.
	Holders []Holder `json:"holders"`
	// PodCIDRs are those that contain it. It is never nil.
	PodCIDRs []Range `json:"podCIDRs"`
}

// Lookup finds the holders of some addresses.
type Lookup struct {
	ips     []netip.Addr
	answers map[netip.Addr]*Answer
	exists  map[string]bool
}

// NewLookup returns a lookup of these addresses, without objects.
func NewLookup(ips []netip.Addr) *Lookup {
	l := &Lookup{answers: map[netip.Addr]*Answer{}}
	for _, ip := range ips {
		ip = ip.Unmap().WithZone("")
		if l.answers[ip] == nil {
			l.answers[ip] = &Answer{Address: ip}
			l.ips = append(l.ips, ip)
		}
	}
	l.CiliumNodes()
	l.Nodes()
	return l
}

// CiliumNodes begins the list of CiliumNodes, again if it was begun before. It returns the function
// that adds one, which keeps no reference to it.
func (l *Lookup) CiliumNodes() (add func(*ciliumnode.Node)) {
	for _, a := range l.answers {
		a.Holders = []Holder{}
	}
	return func(n *ciliumnode.Node) {
		addresses, _ := readAddresses(n)
		for ip, a := range l.answers {
			if h := addresses[ip]; h.InPool || h.Used {
				a.Holders = append(a.Holders, h)
			}
		}
	}
}

// Nodes begins the list of Nodes, again if it was begun before. It returns the function that adds one
// with its pod CIDRs. One that cannot be parsed contains nothing.
func (l *Lookup) Nodes() (add func(name string, podCIDRs []string)) {
	l.exists = map[string]bool{}
	for _, a := range l.answers {
		a.PodCIDRs = []Range{}
	}
	return func(name string, podCIDRs []string) {
		l.exists[name] = true
		for _, text := range podCIDRs {
			prefix, err := netip.ParsePrefix(text)
			if err != nil {
				continue
			}
			for ip, a := range l.answers {
				if prefix.Contains(ip) {
					a.PodCIDRs = append(a.PodCIDRs, Range{name, text})
				}
			}
		}
	}
}

// Answers returns the result for each address, in the order of NewLookup, each once.
func (l *Lookup) Answers() []Answer {
	all := []Answer{}
	for _, ip := range l.ips {
		a := *l.answers[ip]
		a.Holders, a.PodCIDRs = slices.Clone(a.Holders), slices.Clone(a.PodCIDRs)
		slices.SortFunc(a.Holders, func(x, y Holder) int { return cmp.Compare(x.Node, y.Node) })
		slices.SortFunc(a.PodCIDRs, func(x, y Range) int { return cmp.Or(cmp.Compare(x.Node, y.Node), cmp.Compare(x.CIDR, y.CIDR)) })
		for i, h := range a.Holders {
			a.Holders[i].NodeDeleted = !l.exists[h.Node]
		}
		switch {
		case len(a.Holders) == 0:
			a.State = Free
		case len(a.Holders) == 1 && a.Holders[0].InPool:
			a.State = Held
		default:
			a.State = Conflict
		}
		all = append(all, a)
	}
	return all
}
