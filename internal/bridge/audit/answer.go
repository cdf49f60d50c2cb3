package audit

import "net/netip"

// State describes the holders of an address. Its values do not change between versions.
type State string

const (
	Held State = "held" // one pool has the address, and no other node uses it
	// Conflict: several nodes have the address in their pools or use it, or a node uses it without
	// having it in its pool.
	Conflict State = "conflict"
	Free     State = "not-held" // no pool has the address, and no node uses it
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

// Answers returns the holders of each of the addresses of NewCluster, in their order, each once.
func (c *Cluster) Answers() []Answer {
	c.index()
	all := []Answer{}
	for _, ip := range c.only {
		a := Answer{Address: ip, State: Conflict, Holders: c.holders(ip), PodCIDRs: c.ranges(ip)}
		switch {
		case len(a.Holders) == 0:
			a.State = Free
		case len(a.Holders) == 1 && a.Holders[0].InPool:
			a.State = Held
		}
		all = append(all, a)
	}
	return all
}
