// Package reclaim releases what the sidecar of a lost node held (docs/operate/operations.md, Lost nodes).
// Container IDs are computed from owner, node and network, so any node can do that with a plugin
// whose DEL works from any node.
package reclaim

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/delegated-ipam/delegated-ipam/pkg/containerid"
	"github.com/delegated-ipam/delegated-ipam/pkg/delegate/call"
)

// maxFailures is how many calls may fail one after the other: a plugin without its backend takes its
// whole time limit for each.
const maxFailures = 5

// Plugin runs plugins, as delegate.Runner does.
type Plugin interface {
	NewInvocation(ctx context.Context, n call.Network, containerID, owner string) (call.Invocation, error)
	Del(ctx context.Context, c call.Call) error
}

// Pool is a pool with its network, which the lost sidecar had under the same name.
type Pool struct {
	Name    string
	Network call.Network
}

// Node is a lost node.
type Node struct {
	Name string
	// Owners are those that may hold addresses. An owner that holds none costs one DEL.
	Owners []string
	// Generations is the highest suffix -gN of container IDs that is tried beside the ID itself.
	Generations int
}

// Options are how a Reclaim works.
type Options struct {
	Plugin Plugin
	// Pools are at least one.
	Pools []Pool
	// Self is the name of the node on which this process runs.
	Self string
	// Sidecar describes the sidecar of a node and network that runs on this machine; empty for none.
	Sidecar func(node, network string) string
	// DryRun returns the container IDs and calls no DEL.
	DryRun bool
	// Until is when no further node is begun, because what is known of the nodes is too old; zero
	// for never.
	Until time.Time
	// Now returns the time.
	Now func() time.Time
}

// State is what became of a container ID.
type State string

// The states.
const (
	// WouldRelease: a dry run.
	WouldRelease State = "would-release"
	// Released: the DEL has succeeded, whether anything was held or not.
	Released State = "released"
	// Failed: the DEL has failed.
	Failed State = "failed"
	// NotTried: an earlier failure, an interruption or Options.Until came before.
	NotTried State = "not-tried"
)

// Result is what became of one container ID.
type Result struct {
	Node        string `json:"node"`
	Owner       string `json:"owner"`
	Pool        string `json:"pool"`
	Network     string `json:"network"`
	ContainerID string `json:"container-id"`
	State       State  `json:"state"`
	// Error is why the DEL failed.
	Error string `json:"error,omitempty"`
}

// Check returns why nothing of these nodes may be released from here. It calls no verb but VERSION.
func (o Options) Check(ctx context.Context, nodes []Node) error {
	for _, p := range o.Pools {
		id := containerid.For("", o.Self, p.Network.Name)
		inv, err := o.Plugin.NewInvocation(ctx, p.Network, id, "")
		if inv.Profile.Type != "" { // otherwise it is not known
			if refused := inv.Profile.CheckReclaim(); refused != nil {
				err = refused
			}
		}
		if err != nil {
			return fmt.Errorf("pool %q: %w", p.Name, err)
		}
	}
	var errs []error
	for _, n := range nodes {
		errs = append(errs, o.checkNode(n))
	}
	return errors.Join(errs...)
}

func (o Options) checkNode(n Node) error {
	if n.Name == o.Self {
		return fmt.Errorf("%s is this node; `delegated-ipam release --all --yes` releases what its sidecar holds", n.Name)
	}
	for _, p := range o.Pools {
		if holder := o.Sidecar(n.Name, p.Network.Name); holder != "" {
			return fmt.Errorf("the sidecar of node %s and network %q runs on this machine (%s); stop it, or release its addresses with `delegated-ipam release`", n.Name, p.Network.Name, holder)
		}
	}
	return nil
}

// Run releases, one call after the other, what the owners of the nodes may hold, and returns a result
// for each container ID. After ctx has ended, or several failures in a row, the others are not tried.
func (o Options) Run(ctx context.Context, nodes []Node) []Result {
	var all []Result
	failures := 0
	for _, n := range nodes {
		inTime := o.Until.IsZero() || o.Now().Before(o.Until)
		for _, r := range o.results(n) {
			switch {
			case o.DryRun:
				r.State = WouldRelease
			case ctx.Err() != nil || failures >= maxFailures || !inTime:
				r.State = NotTried
			default:
				failures++
				if err := o.release(ctx, &r); err == nil {
					failures = 0
				}
			}
			all = append(all, r.Result)
		}
	}
	return all
}

// target is a Result with what its call needs.
type target struct {
	Result
	pool Pool
	// first is the container ID without a generation: an invocation is made for that.
	first string
}

// results returns a result without a state for each container ID of a node.
func (o Options) results(n Node) []target {
	var all []target
	for _, p := range o.Pools {
		for _, owner := range n.Owners {
			first := containerid.For(owner, n.Name, p.Network.Name)
			for g := range n.Generations + 1 {
				all = append(all, target{Result{
					Node: n.Name, Owner: owner, Pool: p.Name, Network: p.Network.Name, ContainerID: containerid.Generation(first, g),
				}, p, first})
			}
		}
	}
	return all
}

// release calls DEL as the lost sidecar would have, and sets the state.
func (o Options) release(ctx context.Context, t *target) error {
	inv, err := o.Plugin.NewInvocation(ctx, t.pool.Network, t.first, t.Owner)
	if err == nil {
		inv.ContainerID = t.ContainerID
		err = o.Plugin.Del(context.WithoutCancel(ctx), call.Call{ContainerID: t.ContainerID, Owner: t.Owner, Pool: t.Pool, Invocation: inv})
	}
	t.State = Released
	if err != nil {
		t.State, t.Error = Failed, err.Error()
	}
	return err
}
