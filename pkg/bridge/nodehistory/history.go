// Package nodehistory records the Nodes of a cluster and their numbers of slots, so that the addresses
// of a node can be released after its Node and its CiliumNode are deleted: a CiliumNode is removed
// with its Node, and no other object has its last pool (docs/operate/operations.md, Lost nodes).
package nodehistory

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/delegated-ipam/delegated-ipam/pkg/bridge/planner"
	"github.com/delegated-ipam/delegated-ipam/pkg/lostnodes"
)

// Entry is the record of a node.
type Entry struct {
	// Slots is one more than the highest number of a slot that its pool has had.
	Slots int `json:"slots,omitempty"`
	// AbsentSince is when its Node was first found absent; zero while it exists.
	AbsentSince time.Time `json:"absentSince,omitzero"`
}

// History has an entry for each node by its name.
type History map[string]Entry

// Observe returns the history after the API server has listed the names of the Nodes, and the slots in
// the pools of the CiliumNodes, which were listed before. A node that has returned keeps its slots:
// they may still be held from before.
func (h History) Observe(nodes map[string]bool, slots map[string]int, now time.Time) History {
	next := History{}
	for _, name := range slices.Concat(slices.Collect(maps.Keys(h)), slices.Collect(maps.Keys(slots)), slices.Collect(maps.Keys(nodes))) {
		e := h[name]
		e.Slots = max(e.Slots, slots[name])
		switch {
		case nodes[name]:
			e.AbsentSince = time.Time{}
		case e.AbsentSince.IsZero():
			e.AbsentSince = now.UTC().Truncate(time.Second)
		}
		next[name] = e
	}
	return next
}

// Selection selects lost nodes.
type Selection struct {
	// Grace is how long a Node must have been absent.
	Grace time.Duration
	// Max limits the number of listed nodes; those that have been lost longest are first.
	Max int
	// ExtraSlots are added to the slots of each node: its pool may have grown since it was last seen.
	ExtraSlots int
}

// Lost returns the nodes that have been absent for the grace period, those that have been lost longest
// first. owners are those of each node besides its slots. The result is not limited to Selection.Max.
func (h History) Lost(s Selection, owners []string, now time.Time) []lostnodes.Node {
	all := []lostnodes.Node{}
	for name, e := range h {
		if e.AbsentSince.IsZero() || now.Sub(e.AbsentSince) < s.Grace {
			continue
		}
		n := lostnodes.Node{Name: name, AbsentSince: e.AbsentSince, Owners: slices.Clone(owners)}
		if last := e.Slots + s.ExtraSlots - 1; last >= 0 {
			n.Owners = append(n.Owners, fmt.Sprintf("%s..%d", planner.Owner(0), last))
		}
		all = append(all, n)
	}
	slices.SortFunc(all, func(a, b lostnodes.Node) int {
		return cmp.Or(a.AbsentSince.Compare(b.AbsentSince), cmp.Compare(a.Name, b.Name))
	})
	return all
}

// Forget returns the history without the nodes that were reclaimed. One that has returned since stays.
func (h History) Forget(names []string) History {
	next := maps.Clone(h)
	for _, name := range names {
		if !next[name].AbsentSince.IsZero() {
			delete(next, name)
		}
	}
	return next
}
