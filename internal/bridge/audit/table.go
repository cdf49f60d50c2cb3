package audit

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/delegated-ipam/delegated-ipam/internal/bridge/planner"
)

// table has the holders of every address of a cluster. A large one has more than half a million, so
// each takes as few bytes as possible: the text that all entries of the bridge have in common is not
// stored.
type table struct {
	// names are the CiliumNodes; a place refers to one by its index.
	names []string
	// first has one place of each address, and more the others.
	first map[netip.Addr]place
	more  map[netip.Addr][]place
	// foreign are the entries that the bridge did not write.
	foreign map[foreignKey]planner.Entry
}

type place struct {
	usedBy               string
	node                 int32
	slot                 int32 // foreignSlot if the bridge did not write the entry
	inPool, used, cordon bool
	handshake            planner.Handshake
}

// foreignSlot is the slot of an entry that the bridge did not write.
const foreignSlot = -1

type foreignKey struct {
	ip   netip.Addr
	node int32
}

func newTable() *table {
	return &table{first: map[netip.Addr]place{}, more: map[netip.Addr][]place{}, foreign: map[foreignKey]planner.Entry{}}
}

// add adds an address of the node whose name was added last.
func (t *table) add(ip netip.Addr, h Holder) {
	p := place{
		usedBy: h.UsedBy, node: int32(len(t.names) - 1), slot: foreignSlot,
		inPool: h.InPool, used: h.Used, cordon: h.Cordoned, handshake: planner.Handshake(h.Handshake),
	}
	if slot, ours := planner.ParseOwner(h.Slot); ours {
		p.slot = int32(slot)
	} else if h.Resource != "" || h.Owner != "" {
		t.foreign[foreignKey{ip, p.node}] = planner.Entry{Owner: h.Owner, Resource: h.Resource}
	}
	if _, exists := t.first[ip]; exists {
		t.more[ip] = append(t.more[ip], p)
		return
	}
	t.first[ip] = p
}

// each calls f for every address of every node.
func (t *table) each(f func(ip netip.Addr, p place)) {
	for ip, p := range t.first {
		f(ip, p)
		for _, p := range t.more[ip] {
			f(ip, p)
		}
	}
}

// holders returns the holders of an address, sorted by their nodes.
func (t *table) holders(ip netip.Addr) []Holder {
	first, exists := t.first[ip]
	if !exists {
		return nil
	}
	var all []Holder
	for _, p := range append([]place{first}, t.more[ip]...) {
		h := Holder{
			Node: t.names[p.node], InPool: p.inPool, Used: p.used, UsedBy: p.usedBy,
			Cordoned: p.cordon, Handshake: string(p.handshake),
		}
		if p.slot != foreignSlot {
			h.Slot = planner.Owner(int(p.slot))
		}
		foreign := t.foreign[foreignKey{ip, p.node}]
		h.Resource, h.Owner = foreign.Resource, foreign.Owner
		all = append(all, h)
	}
	slices.SortFunc(all, func(a, b Holder) int { return cmp.Compare(a.Node, b.Node) })
	return all
}
