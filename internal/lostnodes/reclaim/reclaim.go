// Package reclaim releases the addresses that the sidecar of a lost node held (docs/operate/operations.md,
// Lost nodes). Container IDs are computed from owner, node and network, so any node can do that with a
// plugin whose DEL works from any node.
package reclaim

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/containerid"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
)

// maxFailures limits the failed calls in a row: a plugin without its backend takes the whole time
// limit for each.
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
	// Err is why its addresses cannot be released; nil if they can.
	Err error
}

// Options configure a reclaim.
type Options struct {
	Plugin Plugin
	// Pools has at least one pool.
	Pools []Pool
	// Self is the name of the node on which this process runs.
	Self string
	// Sidecar describes the sidecar of a node and network that runs on this machine; empty for none.
	Sidecar func(node, network string) string
	// DryRun returns the container IDs and calls no DEL.
	DryRun bool
	// Until is the time after which no further node is begun, because the list of lost nodes is too
	// old; zero for no limit.
	Until time.Time
	// Now returns the time.
	Now func() time.Time
}

// State is the outcome for a container ID.
type State string

// The states.
const (
	// WouldRelease: a dry run.
	WouldRelease State = "would-release"
	// Released: the DEL has succeeded, whether or not an address was allocated.
	Released State = "released"
	// Failed: the DEL has failed, or none can be called for the node.
	Failed State = "failed"
	// NotTried: earlier failures, an interruption or Options.Until prevented the DEL.
	NotTried State = "not-tried"
)

// Result is the outcome for one container ID, or for a node without any.
type Result struct {
	Node        string `json:"node"`
	Owner       string `json:"owner"`
	Pool        string `json:"pool"`
	Network     string `json:"network"`
	ContainerID string `json:"container-id"`
	State       State  `json:"state"`
	// Error is the error of the DEL, or of the node.
	Error string `json:"error,omitempty"`
}

// Check fails if the DEL of a pool's plugin does not work from this node. It calls no verb except
// VERSION.
func (o Options) Check(ctx context.Context) error {
	for _, p := range o.Pools {
		id := containerid.For("", o.Self, p.Network.Name)
		inv, err := o.Plugin.NewInvocation(ctx, p.Network, id, "")
		if inv.Profile.Type != "" { // otherwise the plugin is unknown
			var object struct{ IPAM json.RawMessage }
			_ = json.Unmarshal(inv.Config, &object)
			if refused := inv.Profile.CheckReclaim(object.IPAM); refused != nil {
				err = refused
			}
		}
		if err != nil {
			return fmt.Errorf("pool %q: %w", p.Name, err)
		}
	}
	return nil
}

// CheckNode fails if this process must not release the addresses of a node.
func (o Options) CheckNode(n Node) error {
	if n.Err != nil {
		return n.Err
	}
	if n.Name == o.Self {
		return fmt.Errorf("%s is this node; `delegated-ipam release --all --yes` releases the addresses of its sidecar", n.Name)
	}
	for _, p := range o.Pools {
		if holder := o.Sidecar(n.Name, p.Network.Name); holder != "" {
			return fmt.Errorf("the sidecar of node %s and network %q runs on this machine (%s); stop it, or release its addresses with `delegated-ipam release`", n.Name, p.Network.Name, holder)
		}
	}
	return nil
}

// Run releases the addresses of the owners of the nodes, one call after the other, and returns a
// result for each container ID. After the end of ctx the remaining ones are not tried; after several
// failures in a row those of the same node, and of each further node only the first, until one succeeds.
func (o Options) Run(ctx context.Context, nodes []Node) []Result {
	var all []Result
	failures := 0
	for _, n := range nodes {
		if err := o.CheckNode(n); err != nil {
			all = append(all, Result{Node: n.Name, State: Failed, Error: err.Error()})
			continue
		}
		inTime := o.Until.IsZero() || o.Now().Before(o.Until)
		for i, r := range o.results(n) {
			switch {
			case o.DryRun:
				r.State = WouldRelease
			case ctx.Err() != nil || i > 0 && failures >= maxFailures || !inTime:
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

// target is a Result with the data of its call.
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
