// Package audit compares the pools of all CiliumNodes of a cluster, and finds the holder of an
// address. Addresses are compared as netip.Addr, however they are spelled. It depends on neither
// Kubernetes clients nor files: the caller adds the objects one by one, in any order.
package audit

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/delegated-ipam/delegated-ipam/internal/bridge/ciliumnode"
	"github.com/delegated-ipam/delegated-ipam/internal/bridge/planner"
)

// Holder is a node whose CiliumNode has an address in its pool, or uses it.
type Holder struct {
	// Node is the name of the CiliumNode, and of its Node.
	Node string `json:"node"`
	// NodeDeleted reports whether there is no Node of this name.
	NodeDeleted bool `json:"nodeDeleted,omitempty"`
	// InPool reports whether spec.ipam.pool has the address.
	InPool bool `json:"inPool"`
	// Slot is the daemon's owner of the address, such as "ciliumnode-3"; empty if the bridge did
	// not write the entry.
	Slot string `json:"slot,omitempty"`
	// Resource and Owner are the fields of the entry, if the bridge did not write it.
	Resource string `json:"resource,omitempty"`
	Owner    string `json:"owner,omitempty"`
	// Suspended reports whether the bridge keeps the agent from allocating the address.
	Suspended bool `json:"suspended,omitempty"`
	// Handshake is the state of its release (status.ipam.release-ips); empty for none.
	Handshake string `json:"handshake,omitempty"`
	// Used reports whether the agent uses the address. UsedBy is the user: NAMESPACE/NAME of a pod, or
	// a name such as "router"; empty if unknown.
	Used   bool   `json:"used"`
	UsedBy string `json:"usedBy,omitempty"`
}

// String describes the holder in one line, such as "worker-1 (ciliumnode-3, used by default/a)".
func (h Holder) String() string {
	use := "not used"
	if h.Used {
		use = "used" + by(h.UsedBy)
	}
	return fmt.Sprintf("%s (%s)", h.Node, join(h.Slot, h.Note(), use))
}

// Note returns the facts besides node, slot and user; empty for none.
func (h Holder) Note() string {
	when := func(is bool, fact string) string {
		if is {
			return fact
		}
		return ""
	}
	return join(
		when(h.NodeDeleted, "the Node does not exist"),
		when(!h.InPool, "not in its pool"),
		when(h.InPool && h.Slot == "", "not an entry of the bridge"),
		when(h.Resource != "", "resource "+h.Resource),
		when(h.Owner != "", "owner "+h.Owner),
		when(h.Suspended, "suspended"),
		h.Handshake)
}

func join(facts ...string) string {
	return strings.Join(slices.DeleteFunc(facts, func(f string) bool { return f == "" }), ", ")
}

func by(name string) string {
	if name == "" {
		return ""
	}
	return " by " + name
}

// readAddresses returns the data of a CiliumNode about each address, and a finding for each key that is not an address
// as the agent spells it.
func readAddresses(n *ciliumnode.Node) (map[netip.Addr]Holder, []Finding) {
	all := make(map[netip.Addr]Holder, len(n.Spec.IPAM.Pool))
	var malformed []Finding
	// parse returns the entry for the address of a key. Of several spellings of one address the one of
	// the agent, which comes last, counts.
	parse := func(field, key string) (Holder, netip.Addr) {
		ip, wellFormed := ciliumnode.ParseAddress(key)
		if !wellFormed {
			malformed = append(malformed, Finding{
				Check: Malformed, Node: n.Metadata.Name, Address: key,
				Message: fmt.Sprintf("%s has the key %q, which is not an address as the agent spells it", field, key),
			})
		}
		h := all[ip]
		h.Node = n.Metadata.Name
		return h, ip
	}
	for _, key := range sortedKeys(n.Spec.IPAM.Pool) {
		h, ip := parse("spec.ipam.pool", key)
		e := n.Spec.IPAM.Pool[key]
		h.InPool, h.Slot, h.Resource, h.Owner, h.Suspended = true, "", e.Resource, e.Owner, e.Suspended()
		if slot, ours := e.Slot(); ours {
			h.Slot, h.Resource, h.Owner = planner.Owner(slot), "", ""
		}
		all[ip] = h
	}
	delete(all, netip.Addr{}) // keys that are not addresses
	used := n.Status.IPAM.Used
	if len(all) == 0 && n.OtherMode() != "" {
		used = nil // not about a pool
	}
	for _, key := range sortedKeys(used) {
		h, ip := parse("status.ipam.used", key)
		h.Used, h.UsedBy = true, used[key].Owner
		all[ip] = h
	}
	for _, key := range sortedKeys(n.Status.IPAM.ReleaseIPs) {
		h, ip := parse("status.ipam.release-ips", key)
		if h.Handshake = string(n.Status.IPAM.ReleaseIPs[key]); h.InPool || h.Used || ip != planner.Ping {
			all[ip] = h
		}
	}
	delete(all, netip.Addr{})
	return all, malformed
}

// sortedKeys returns the keys of a map: first those that are not spelled as the agent does, sorted,
// then the others, each of which is another address.
func sortedKeys[V any](m map[string]V) []string {
	var odd, plain []string
	for key := range m {
		if _, wellFormed := ciliumnode.ParseAddress(key); wellFormed {
			plain = append(plain, key)
		} else {
			odd = append(odd, key)
		}
	}
	slices.Sort(odd)
	return append(odd, plain...)
}

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
		a := Answer{Address: ip, State: Conflict, Holders: append([]Holder{}, c.addresses[ip]...), PodCIDRs: c.ranges(ip)}
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
