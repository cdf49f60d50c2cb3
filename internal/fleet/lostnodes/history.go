package lostnodes

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

// MaxSlots limits the slots of a node: no node has more pods. Each costs a call of the plugin, and any
// client that writes to a CiliumNode chooses their numbers.
const MaxSlots = 1024

// slotOwner begins the owner of each slot, as the bridge names them (planner.Owner).
const slotOwner = "ciliumnode-"

// Entry is the record of a node that had a Node.
type Entry struct {
	// UID is the UID of its last Node.
	UID string `json:"uid,omitempty"`
	// Slots is one more than the highest number of a slot that its pool has had.
	Slots int `json:"slots,omitempty"`
	// AbsentSince and AbsentAt are the first and the last look that found its Node absent, with no gap
	// between them; zero while it exists.
	AbsentSince time.Time `json:"absentSince,omitzero"`
	AbsentAt    time.Time `json:"absentAt,omitzero"`
}

// NodePool is the pool of a CiliumNode.
type NodePool struct {
	// Slots is one more than the highest number of a slot.
	Slots int
	// NodeUID is the UID of the Node that owns the CiliumNode; empty for none.
	NodeUID string
}

// History records the Nodes of a cluster and their numbers of slots by name, so that the addresses of a
// node can be released after its Node and its CiliumNode are deleted: a CiliumNode is removed with its
// Node, and no other object has its last pool.
type History map[string]Entry

// Observe returns the history after a look: the API server has listed the UIDs of the Nodes, and the
// pools of the CiliumNodes, which were listed before. A node that has returned keeps its slots: they may
// still be held from before. After more than maxGap since the last look a node counts as absent from now
// on: its Node may have existed meanwhile. So does it while there is a CiliumNode that its Node did not
// own: another machine has the name. A name that never had a Node is not recorded.
func (h History) Observe(nodes map[string]string, pools map[string]NodePool, maxGap time.Duration, now time.Time) History {
	next := History{}
	now = now.UTC().Truncate(time.Second)
	for _, name := range slices.Concat(slices.Collect(maps.Keys(h)), slices.Collect(maps.Keys(nodes))) {
		e := h[name]
		pool, inUse := pools[name]
		e.Slots = max(e.Slots, pool.Slots)
		uid, exists := nodes[name]
		gap := now.Sub(e.AbsentAt)
		switch {
		case exists:
			e.UID, e.AbsentSince, e.AbsentAt = uid, time.Time{}, time.Time{}
		case e.UID == "":
			continue
		case inUse && pool.NodeUID != e.UID:
			e.AbsentSince, e.AbsentAt = time.Time{}, time.Time{}
		case gap < 0 || gap > maxGap:
			e.AbsentSince, e.AbsentAt = now, now
		default:
			e.AbsentAt = now
		}
		next[name] = e
	}
	return next
}

// lost returns the names of the nodes that have been absent for a grace period, those that have been lost longest first.
func (h History) lost(grace time.Duration, now time.Time) []string {
	var names []string
	for name, e := range h {
		if !e.AbsentSince.IsZero() && now.Sub(e.AbsentSince) >= grace {
			names = append(names, name)
		}
	}
	slices.SortFunc(names, func(a, b string) int {
		return cmp.Or(h[a].AbsentSince.Compare(h[b].AbsentSince), cmp.Compare(a, b))
	})
	return names
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
