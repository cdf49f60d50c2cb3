package lostnodes

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/containerid"
)

type Cluster interface {
	// Pools returns the pools of the CiliumNodes, and NodeUIDs the UIDs of the Nodes, by name.
	Pools(context.Context) (map[string]NodePool, error)
	NodeUIDs(context.Context) (map[string]string, error)
}

// Tracker finds lost nodes by comparing the Nodes of a cluster with its history.
type Tracker struct {
	Cluster Cluster
	// UpdateHistory replaces the stored history by the result of change.
	UpdateHistory func(ctx context.Context, change func(History) History) (History, error)
	// ContainerIDs lists the reservations in the plugin's store, which are compared with the lost nodes;
	// nil if they cannot be listed.
	ContainerIDs func(context.Context) (map[string]bool, error)
	// Networks are the names of the networks of the sidecars, for ContainerIDs.
	Networks []string
	// Owners are those that any node may have, besides its slots.
	Owners []string
	// MaxGap is the longest time between two looks in which a Node that both found absent did not exist.
	MaxGap time.Duration
	// Grace is how long a Node must have been absent.
	Grace time.Duration
	// MaxNodes limits the number of listed nodes; those that have been lost longest are first.
	MaxNodes int
	// ExtraSlots are added to the slots of each node: its pool may have grown since it was last seen.
	ExtraSlots int
	Now        func() time.Time
}

// Lost brings the history up to date and returns the lost nodes.
func (t Tracker) Lost(ctx context.Context) (List, error) {
	// First, because the Node exists before its CiliumNode.
	pools, err := t.Cluster.Pools(ctx)
	if err != nil {
		return List{}, err
	}
	now := t.Now()
	nodes, err := t.nodes(ctx)
	if err != nil {
		return List{}, err
	}
	h, err := t.UpdateHistory(ctx, func(h History) History { return h.Observe(nodes, pools, t.MaxGap, now) })
	if err != nil {
		return List{}, err
	}
	lost := t.lost(h, now)
	if t.ContainerIDs != nil && len(lost) > 0 {
		if lost, err = t.compare(ctx, h, lost); err != nil {
			return List{}, err
		}
	}
	return List{Time: now.UTC(), Nodes: lost[:min(len(lost), t.MaxNodes)]}, nil
}

// compare returns the lost nodes with a reservation in the plugin's store, and forgets the others.
func (t Tracker) compare(ctx context.Context, h History, lost []Node) ([]Node, error) {
	held, err := t.held(ctx)
	if err == nil {
		err = held.check(h)
	}
	if err != nil {
		return nil, err
	}
	var holding []Node
	var empty []string
	for _, n := range lost {
		if n.Owners, n.Generations = held.of(n.Name); len(n.Owners) > 0 {
			holding = append(holding, n)
		} else {
			empty = append(empty, n.Name)
		}
	}
	_, err = t.UpdateHistory(ctx, func(h History) History { return h.Forget(empty) })
	return holding, err
}

func (t Tracker) held(ctx context.Context) (held, error) {
	ids, err := t.ContainerIDs(ctx)
	return held{ids, t.Networks, t.Owners}, err
}

// Forget removes the reclaimed nodes of a report from the history. One that has returned stays. The
// error names the nodes that could not be reclaimed; they are listed again.
func (t Tracker) Forget(ctx context.Context, r Report) error {
	now := t.Now()
	nodes, err := t.nodes(ctx)
	if err != nil {
		return err
	}
	released, remaining := r.Reclaimed, []error{}
	if t.ContainerIDs != nil && len(released) > 0 {
		held, err := t.held(ctx)
		if err != nil {
			return err
		}
		released = slices.DeleteFunc(slices.Clone(released), func(name string) bool {
			owners, _ := held.of(name)
			if len(owners) > 0 {
				remaining = append(remaining, fmt.Errorf("node %s: each DEL has succeeded, but the plugin's store still has addresses of %q", name, owners))
			}
			return len(owners) > 0
		})
	}
	_, err = t.UpdateHistory(ctx, func(h History) History { return h.Observe(nodes, nil, t.MaxGap, now).Forget(released) })
	if len(r.Failed) > 0 {
		failed := ""
		for _, name := range slices.Sorted(maps.Keys(r.Failed)) {
			failed += fmt.Sprintf("\n  %s: %s", name, r.Failed[name])
		}
		remaining = append(remaining, fmt.Errorf("%d lost nodes could not be reclaimed and are tried again in the next run:%s", len(r.Failed), failed))
	}
	return errors.Join(append([]error{err}, remaining...)...)
}

// nodes returns the UIDs of the Nodes. An empty list is an error: otherwise every node would count as
// lost.
func (t Tracker) nodes(ctx context.Context) (map[string]string, error) {
	nodes, err := t.Cluster.NodeUIDs(ctx)
	if err == nil && len(nodes) == 0 {
		err = errors.New("the API server lists no Node; expected at least the one on which this runs")
	}
	return nodes, err
}

// maxGeneration bounds the container IDs of an owner that are looked up in a store.
const maxGeneration = 8

// held finds the reservations of nodes in a list of container IDs.
type held struct {
	ids      map[string]bool
	networks []string
	// owners are those that any node may have besides slots.
	owners []string
}

// of returns the owners of a node with a reservation, and the highest generation of their IDs.
func (h held) of(node string) (owners []string, generation int) {
	candidates, _ := Expand(h.owners) // checked with the options
	for slot := range MaxSlots {
		candidates = append(candidates, slotOwner+strconv.Itoa(slot))
	}
	for _, owner := range candidates {
		if g, ok := h.generation(owner, node); ok {
			owners = append(owners, owner)
			generation = max(generation, g)
		}
	}
	return owners, generation
}

// generation returns the highest generation of an owner's IDs with a reservation.
func (h held) generation(owner, node string) (highest int, ok bool) {
	for _, network := range h.networks {
		id := containerid.For(owner, node, network)
		for g := range maxGeneration + 1 {
			if h.ids[containerid.Generation(id, g)] {
				highest, ok = max(highest, g), true
			}
		}
	}
	return highest, ok
}

// check fails if the list cannot be from these nodes: it has container IDs of sidecars, but none of
// a known node; or it has none although pools have slots.
func (h held) check(known History) error {
	ours := 0
	for id := range h.ids {
		if containerid.Match(id) {
			ours++
		}
	}
	filled := 0
	for name, e := range known {
		if owners, _ := h.of(name); len(owners) > 0 {
			return nil
		}
		if e.Slots > 0 && e.AbsentSince.IsZero() {
			filled++
		}
	}
	switch {
	case ours == 0 && filled == 0:
		return nil
	case ours == 0:
		return fmt.Errorf("the plugin's store has no container ID of a sidecar, and the pools of %d nodes have slots; expected the store of these nodes, by --whereabouts-namespace", filled)
	}
	return fmt.Errorf("the plugin's store has %d container IDs of sidecars, and none is that of a known node in the networks %q; expected the names of the networks of the sidecars, by --cni-networks", ours, h.networks)
}
