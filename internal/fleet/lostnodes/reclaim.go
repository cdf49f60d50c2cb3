package lostnodes

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

// Plugin runs plugins, as plugin.Runner does.
type Plugin interface {
	NewInvocation(ctx context.Context, n call.Network, containerID, owner string) (call.Invocation, error)
	Del(ctx context.Context, c call.Call) error
}

// Pool is a pool with its network, which the lost sidecar had under the same name.
type Pool struct {
	Name    string
	Network call.Network
}

// Reclaim releases the addresses that the sidecars of lost nodes held. Container IDs are computed from
// owner, node and network, so any node can do that with a plugin whose DEL works from any node.
type Reclaim struct {
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
	Now   func() time.Time
}

type State string

const (
	WouldRelease State = "would-release" // a dry run
	Released     State = "released"      // the DEL has succeeded, whether or not an address was allocated
	Failed       State = "failed"        // the DEL has failed, or none can be called for the node
	NotTried     State = "not-tried"     // earlier failures, an interruption or Reclaim.Until prevented the DEL
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
func (r Reclaim) Check(ctx context.Context) error {
	for _, p := range r.Pools {
		id := containerid.For("", r.Self, p.Network.Name)
		inv, err := r.Plugin.NewInvocation(ctx, p.Network, id, "")
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
func (r Reclaim) CheckNode(n Node) error {
	if _, err := n.AllOwners(); err != nil {
		return err
	}
	if n.Name == r.Self {
		return fmt.Errorf("%s is this node; `delegated-ipam release --all --yes` releases the addresses of its sidecar", n.Name)
	}
	for _, p := range r.Pools {
		if holder := r.Sidecar(n.Name, p.Network.Name); holder != "" {
			return fmt.Errorf("the sidecar of node %s and network %q runs on this machine (%s); stop it, or release its addresses with `delegated-ipam release`", n.Name, p.Network.Name, holder)
		}
	}
	return nil
}

// Run releases the addresses of the owners of the nodes, one call after the other, and returns a
// result for each container ID. After the end of ctx the remaining ones are not tried; after several
// failures in a row only the first of each further node is tried, until one succeeds.
func (r Reclaim) Run(ctx context.Context, nodes []Node) []Result {
	var all []Result
	failures := 0
	for _, n := range nodes {
		if err := r.CheckNode(n); err != nil {
			all = append(all, Result{Node: n.Name, State: Failed, Error: err.Error()})
			continue
		}
		inTime := r.Until.IsZero() || r.Now().Before(r.Until)
		for i, t := range r.targets(n) {
			switch {
			case r.DryRun:
				t.State = WouldRelease
			case ctx.Err() != nil || i > 0 && failures >= maxFailures || !inTime:
				t.State = NotTried
			default:
				failures++
				if err := r.release(ctx, &t); err == nil {
					failures = 0
				}
			}
			all = append(all, t.Result)
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

// targets returns a target without a state for each container ID of a node.
func (r Reclaim) targets(n Node) []target {
	var all []target
	owners, _ := n.AllOwners() // checked by CheckNode
	for _, p := range r.Pools {
		for _, owner := range owners {
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
func (r Reclaim) release(ctx context.Context, t *target) error {
	inv, err := r.Plugin.NewInvocation(ctx, t.pool.Network, t.first, t.Owner)
	if err == nil {
		inv.ContainerID = t.ContainerID
		err = r.Plugin.Del(context.WithoutCancel(ctx), call.Call{Owner: t.Owner, Pool: t.Pool, Invocation: inv})
	}
	t.State = Released
	if err != nil {
		t.State, t.Error = Failed, err.Error()
	}
	return err
}
