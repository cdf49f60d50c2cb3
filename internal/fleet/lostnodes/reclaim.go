package lostnodes

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
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

// Reclaim releases the addresses that the daemons of lost nodes held. Container IDs are computed from
// owner, node and network, so any node can do that with a plugin whose DEL works from any node.
type Reclaim struct {
	Plugin Plugin
	// Networks are those of the daemon here, of the same names as those of the lost daemons.
	Networks []call.Network
	// Self is the name of the node on which this process runs.
	Self string
	// Daemon describes the daemon of a node and network that runs on this machine; empty for none.
	Daemon func(node, network string) string
	// DryRun returns the container IDs and calls no DEL.
	DryRun bool
	// Until is the time after which no further node is begun, because the list of lost nodes is too
	// old; zero for no limit.
	Until time.Time
	Now   func() time.Time
}

// Check fails if the DEL of a network's plugin does not work from this node. It calls no verb except
// VERSION.
func (r Reclaim) Check(ctx context.Context) error {
	for _, n := range r.Networks {
		inv, err := r.Plugin.NewInvocation(ctx, n, containerid.For("", r.Self, n.Name), "")
		if inv.Profile.Type != "" { // otherwise the plugin is unknown
			var object struct{ IPAM json.RawMessage }
			_ = json.Unmarshal(inv.Config, &object)
			if refused := inv.Profile.CheckReclaim(object.IPAM); refused != nil {
				err = refused
			}
		}
		if err != nil {
			return fmt.Errorf("network %q: %w", n.Name, err)
		}
	}
	return nil
}

// CheckNode fails if this process must not release the addresses of a node.
func (r Reclaim) CheckNode(node string) error {
	if node == r.Self {
		return fmt.Errorf("%s is this node; `delegated-ipam release --all --yes` releases the addresses of its daemon", node)
	}
	for _, n := range r.Networks {
		if holder := r.Daemon(node, n.Name); holder != "" {
			return fmt.Errorf("the daemon of node %s and network %q runs on this machine (%s); stop it, or release its addresses with `delegated-ipam release`", node, n.Name, holder)
		}
	}
	return nil
}

// Run calls DEL for each target, one call after the other, and returns them with their outcome. After the end of ctx
// the remaining ones are not tried; after several failures in a row only the first of each further node is tried,
// until one succeeds.
func (r Reclaim) Run(ctx context.Context, targets []Target) []Target {
	all := slices.Clone(targets)
	failures, skip := 0, false
	for i := range all {
		t := &all[i]
		first := i == 0 || t.Node != all[i-1].Node
		if first {
			skip = !r.Until.IsZero() && !r.Now().Before(r.Until)
			if err := r.CheckNode(t.Node); err != nil {
				t.State, t.Error, skip = Failed, err.Error(), true
				continue
			}
		}
		switch {
		case ctx.Err() != nil || skip || !first && failures >= maxFailures:
			t.State = NotTried
		case r.DryRun:
			t.State = WouldRelease
		default:
			t.State = Released
			failures++
			if err := r.release(ctx, *t); err != nil {
				t.State, t.Error = Failed, err.Error()
			} else {
				failures = 0
			}
		}
	}
	return all
}

// release calls DEL as the lost daemon would have.
func (r Reclaim) release(ctx context.Context, t Target) error {
	i := slices.IndexFunc(r.Networks, func(n call.Network) bool { return n.Name == t.Network })
	if i < 0 || !containerid.Match(t.ContainerID) {
		return fmt.Errorf("container ID %q of network %q; expected one of a daemon, and a network that is configured here", t.ContainerID, t.Network)
	}
	// The arguments are made from the ID without a generation.
	inv, err := r.Plugin.NewInvocation(ctx, r.Networks[i], containerid.For(t.Owner, t.Node, t.Network), t.Owner)
	if err != nil {
		return err
	}
	inv.ContainerID = t.ContainerID
	return r.Plugin.Del(context.WithoutCancel(ctx), call.Call{Owner: t.Owner, Invocation: inv})
}
