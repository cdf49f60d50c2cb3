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
	// ContainerIDs lists the reservations in the plugin's store, to which the targets are limited;
	// nil if they cannot be listed.
	ContainerIDs func(context.Context) (map[string]bool, error)
	// Networks are the names of the networks of the daemons.
	Networks []string
	// Owners are those that any node may have, expanded, besides its slots.
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
	lost := h.lost(t.Grace, now)
	targets := func(name string) []Target {
		return Targets(name, t.owners(min(h[name].Slots, MaxSlots)+t.ExtraSlots), t.Networks, 0)
	}
	if t.ContainerIDs != nil && len(lost) > 0 {
		ids, err := t.ContainerIDs(ctx)
		if err == nil {
			err = t.check(ids, h)
		}
		if err != nil {
			return List{}, err
		}
		targets = func(name string) []Target { return t.held(name, ids) }
		empty := slices.DeleteFunc(lost, func(name string) bool { return len(targets(name)) > 0 })
		if h, err = t.UpdateHistory(ctx, func(h History) History { return h.Forget(empty) }); err != nil {
			return List{}, err
		}
		lost = h.lost(t.Grace, now)
	}
	list := List{Time: now.UTC(), Targets: []Target{}}
	for _, name := range lost[:min(len(lost), t.MaxNodes)] {
		list.Targets = append(list.Targets, targets(name)...)
	}
	return list, nil
}

// Forget removes the nodes of a report, of which each ID was released, from the history. One that has returned stays.
// The error names the nodes that could not be reclaimed; they are listed again.
func (t Tracker) Forget(ctx context.Context, report List) error {
	now := t.Now()
	nodes, err := t.nodes(ctx)
	if err != nil {
		return err
	}
	released, failed := report.outcome()
	var errs []error
	if t.ContainerIDs != nil && len(released) > 0 {
		ids, err := t.ContainerIDs(ctx)
		if err != nil {
			return err
		}
		released = slices.DeleteFunc(released, func(name string) bool {
			held := t.held(name, ids)
			if len(held) > 0 {
				errs = append(errs, fmt.Errorf("node %s: each DEL has succeeded, but the plugin's store still has %d addresses, such as that of %s", name, len(held), held[0].ContainerID))
			}
			return len(held) > 0
		})
	}
	_, err = t.UpdateHistory(ctx, func(h History) History { return h.Observe(nodes, nil, t.MaxGap, now).Forget(released) })
	for _, name := range slices.Sorted(maps.Keys(failed)) {
		errs = append(errs, fmt.Errorf("node %s could not be reclaimed, and is tried again in the next run: %s", name, failed[name]))
	}
	return errors.Join(append(errs, err)...)
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

// owners returns those that a node with so many slots may have.
func (t Tracker) owners(slots int) []string {
	owners := slices.Clone(t.Owners)
	for slot := range slots {
		owners = append(owners, slotOwner+strconv.Itoa(slot))
	}
	return owners
}

// held returns the container IDs of a node that have a reservation.
func (t Tracker) held(node string, ids map[string]bool) []Target {
	all := Targets(node, t.owners(MaxSlots), t.Networks, maxGeneration)
	return slices.DeleteFunc(all, func(t Target) bool { return !ids[t.ContainerID] })
}

// check fails if the list cannot be from these nodes: it has container IDs of daemons, but none of
// a known node; or it has none although pools have slots.
func (t Tracker) check(ids map[string]bool, known History) error {
	ours := 0
	for id := range ids {
		if containerid.Match(id) {
			ours++
		}
	}
	filled := 0
	for name, e := range known {
		if ours > 0 && len(t.held(name, ids)) > 0 {
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
		return fmt.Errorf("the plugin's store has no container ID of a daemon, and the pools of %d nodes have slots; expected the store of these nodes, by --whereabouts-namespace", filled)
	}
	return fmt.Errorf("the plugin's store has %d container IDs of daemons, and none is that of a known node in the networks %q; expected the names of the networks of the daemons, by --cni-networks", ours, t.Networks)
}
