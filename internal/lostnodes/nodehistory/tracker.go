package nodehistory

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/bridge/ciliumnode"
	"github.com/delegated-ipam/delegated-ipam/internal/lostnodes"
)

// Cluster lists objects of the cluster. begin returns the function that gets each of them, and is
// called again if the list starts again.
type Cluster interface {
	CiliumNodes(ctx context.Context, begin func() (each func(*ciliumnode.Node))) error
	NodeUIDs(ctx context.Context, begin func() (each func(name, uid string))) error
}

// Tracker finds lost nodes by comparing the Nodes of a cluster with its history.
type Tracker struct {
	Cluster Cluster
	Store   Store
	// Plugin is the plugin's store, which is compared with the lost nodes; nil if it cannot be listed.
	Plugin PluginStore
	// Networks are the names of the networks of the sidecars, for Plugin.
	Networks []string
	// Owners are those that any node may have, besides its slots.
	Owners []string
	// MaxGap is the longest time between two looks in which a Node that both found absent did not exist.
	MaxGap time.Duration
	// Now returns the time.
	Now func() time.Time
}

// Lost brings the history up to date and returns the lost nodes.
func (t Tracker) Lost(ctx context.Context, s Selection) (lostnodes.List, error) {
	pools := map[string]Pool{}
	// First, because the Node exists before its CiliumNode.
	err := t.Cluster.CiliumNodes(ctx, func() func(*ciliumnode.Node) {
		clear(pools)
		return func(n *ciliumnode.Node) { pools[n.Metadata.Name] = poolOf(n) }
	})
	if err != nil {
		return lostnodes.List{}, err
	}
	now := t.Now()
	nodes, err := t.nodes(ctx)
	if err != nil {
		return lostnodes.List{}, err
	}
	h, err := t.Store.update(ctx, func(h History) History { return h.Observe(nodes, pools, t.MaxGap, now) })
	if err != nil {
		return lostnodes.List{}, err
	}
	lost := h.Lost(s, t.Owners, now)
	if t.Plugin != nil && len(lost) > 0 {
		if lost, err = t.compare(ctx, h, lost); err != nil {
			return lostnodes.List{}, err
		}
	}
	return lostnodes.List{Time: now.UTC(), Nodes: lost[:min(len(lost), s.Max)]}, nil
}

// compare returns the lost nodes with a reservation in the plugin's store, and forgets the others.
func (t Tracker) compare(ctx context.Context, h History, lost []lostnodes.Node) ([]lostnodes.Node, error) {
	held, err := t.held(ctx)
	if err == nil {
		err = held.check(h)
	}
	if err != nil {
		return nil, err
	}
	holding, empty := held.narrow(lost)
	_, err = t.Store.update(ctx, func(h History) History { return h.Forget(empty) })
	return holding, err
}

func (t Tracker) held(ctx context.Context) (held, error) {
	ids, err := t.Plugin.ContainerIDs(ctx)
	return held{ids, t.Networks, t.Owners}, err
}

// Forget removes the reclaimed nodes of a report from the history. One that has returned stays. The
// error names the nodes that could not be reclaimed; they are listed again.
func (t Tracker) Forget(ctx context.Context, r lostnodes.Report) error {
	now := t.Now()
	nodes, err := t.nodes(ctx)
	if err != nil {
		return err
	}
	released, remaining := r.Reclaimed, error(nil)
	if t.Plugin != nil && len(released) > 0 {
		held, err := t.held(ctx)
		if err != nil {
			return err
		}
		released, remaining = held.remaining(released)
	}
	_, err = t.Store.update(ctx, func(h History) History { return h.Observe(nodes, nil, t.MaxGap, now).Forget(released) })
	return errors.Join(err, remaining, failures(r))
}

// failures returns an error that names the failed nodes of a report.
func failures(r lostnodes.Report) error {
	if len(r.Failed) == 0 {
		return nil
	}
	var lines []string
	for _, name := range slices.Sorted(maps.Keys(r.Failed)) {
		lines = append(lines, fmt.Sprintf("  %s: %s", name, r.Failed[name]))
	}
	return fmt.Errorf("%d lost nodes could not be reclaimed and are tried again in the next run:\n%s", len(lines), strings.Join(lines, "\n"))
}

// nodes returns the UIDs of the Nodes. An empty list is an error: otherwise every node would count as
// lost.
func (t Tracker) nodes(ctx context.Context) (map[string]string, error) {
	nodes := map[string]string{}
	err := t.Cluster.NodeUIDs(ctx, func() func(string, string) {
		clear(nodes)
		return func(name, uid string) { nodes[name] = uid }
	})
	if err == nil && len(nodes) == 0 {
		err = errors.New("the API server lists no Node; expected at least the one on which this runs")
	}
	return nodes, err
}

// poolOf returns the pool of a CiliumNode, without impossible slots.
func poolOf(n *ciliumnode.Node) Pool {
	var p Pool
	for _, a := range n.Spec.IPAM.Pool {
		if slot, ok := a.Entry().Slot(); ok && slot < maxSlot {
			p.Slots = max(p.Slots, slot+1)
		}
	}
	for _, owner := range n.Metadata.OwnerReferences {
		if owner.Kind == "Node" {
			p.NodeUID = string(owner.UID)
		}
	}
	return p
}
