package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/delegated-ipam/delegated-ipam/pkg/containerid"
	"github.com/delegated-ipam/delegated-ipam/pkg/option"
)

// idOptions are the flags of `id`.
type idOptions struct {
	clientFlags
	pool, node, network string
}

// identified is what `id -o json` prints.
type identified struct {
	ContainerID string `json:"container-id"`
}

// idCommand is `id`.
func (p program) idCommand() *cobra.Command {
	o := &idOptions{}
	cmd := &cobra.Command{
		Use:   "id OWNER",
		Short: "Print the container ID of an owner",
		Long: `Print the container ID (CNI_CONTAINERID) under which the plugin knows an owner.

Of an owner that holds something it is the ID in use. Otherwise it is the one that a
new attachment would get: it is made from the owner, the node's name and the
network's name, and is therefore known in advance.

With --node-name or --cni-network it is always made, for that node and network, and
what is not given is asked for. With both no sidecar is needed.`,
		Example: `  # What host-local wrote for the router
  grep -rl "$(delegated-ipam id router)" /var/lib/cni/networks

  # Without a sidecar
  delegated-ipam id router --node-name worker-1 --cni-network pods`,
		Args: takes("OWNER"),
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := p.connect(o.clientFlags).containerID(cmd.Context(), *o, args[0])
			if err != nil {
				return fmt.Errorf("id %s: %w", args[0], err)
			}
			return o.printOutcome(cmd.OutOrStdout(), identified{id}, id)
		},
	}
	o.register(cmd, p.env)
	flags := cmd.Flags()
	flags.Var(option.Text(&o.pool, "name"), "pool", `pool in which the owner holds it (default "default")`)
	flags.Var(option.Text(&o.node, "name"), "node-name", "name of the node; that of the sidecar if not set")
	flags.Var(option.Text(&o.network, "name"), "cni-network", "name of the CNI network; that of the pool if not set")
	return cmd
}

// containerID is the ID in use, or the one that would be.
func (c connection) containerID(ctx context.Context, o idOptions, owner string) (string, error) {
	if o.node == "" && o.network == "" {
		id, err := c.usedID(ctx, owner, poolName(o.pool))
		if err != nil || id != "" {
			return id, err
		}
	}
	if o.node == "" || o.network == "" {
		if err := c.complete(ctx, &o); err != nil {
			return "", err
		}
	}
	return containerid.ContainerID(owner, o.node, o.network), nil
}

// usedID is the ID of what the owner holds in the pool, empty if nothing.
func (c connection) usedID(ctx context.Context, owner, pool string) (string, error) {
	all, err := c.list(ctx)
	if err != nil {
		return "", err
	}
	for _, a := range all {
		if a.Owner == owner && a.Pool == pool {
			return a.ContainerID, nil
		}
	}
	return "", nil
}

// complete asks the sidecar for the names that are not given.
func (c connection) complete(ctx context.Context, o *idOptions) error {
	answer, err := c.health(ctx)
	if err != nil {
		return err
	}
	if o.node == "" {
		o.node = answer.DelegatedIpam.NodeName
	}
	if o.network != "" {
		return nil
	}
	known := make([]string, 0, len(answer.DelegatedIpam.Pools))
	for _, p := range answer.DelegatedIpam.Pools {
		known = append(known, p.Pool)
		if p.Pool == poolName(o.pool) {
			o.network = p.Network
		}
	}
	if o.network == "" {
		return fmt.Errorf("the network of pool %q is not known; the sidecar has the pools %q, and a pool's network when it has found a configuration for it; --cni-network names one", poolName(o.pool), known)
	}
	return nil
}
