package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/delegated-ipam/delegated-ipam/pkg/containerid"
	"github.com/delegated-ipam/delegated-ipam/pkg/options"
)

// idOptions are the flags of `id`.
type idOptions struct {
	clientFlags
	pool, node, network string
}

// identified is the output of `id -o json`.
type identified struct {
	ContainerID string `json:"container-id"`
}

func (d dependencies) idCommand() *cobra.Command {
	o := &idOptions{}
	cmd := &cobra.Command{
		Use:   "id OWNER",
		Short: "Print the container ID of an owner",
		Long: `Print the container ID (CNI_CONTAINERID) under which the plugin knows an owner.

For an owner that holds addresses it is the ID in use. Otherwise it is the ID of a new
attachment, which is computed from the owner and the names of node and network.

With --node-name or --cni-network the ID is always computed, for that node and network,
and the other name is that of the sidecar. With both no sidecar is needed.`,
		Example: `  # The files of host-local for the router
  grep -rl "$(delegated-ipam id router)" /var/lib/cni/networks

  # Without a sidecar
  delegated-ipam id router --node-name worker-1 --cni-network pods`,
		Args: args("OWNER"),
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := d.connect(o.clientFlags).containerID(cmd.Context(), *o, args[0])
			if err != nil {
				return fmt.Errorf("id %s: %w", args[0], err)
			}
			return o.printOutcome(cmd.OutOrStdout(), identified{id}, id)
		},
	}
	o.register(cmd, d.env,
		poolOption(&o.pool, "pool of the attachment"),
		options.Option{Name: "node-name", Value: options.Text(&o.node, "name"), Help: "name of the node (empty = node of the sidecar)"},
		options.Option{Name: "cni-network", Value: options.Text(&o.network, "name"), Help: "name of the CNI network (empty = network of the pool)"})
	return cmd
}

// containerID returns the ID in use, or that of a new attachment.
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
	return containerid.For(owner, o.node, o.network), nil
}

// usedID returns the ID of the attachment of an owner in a pool, empty if there is none.
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

// complete adds the names that are not given from the status of the sidecar.
func (c connection) complete(ctx context.Context, o *idOptions) error {
	status, err := c.health(ctx)
	if err != nil {
		return err
	}
	if o.node == "" {
		o.node = status.DelegatedIpam.NodeName
	}
	if o.network != "" {
		return nil
	}
	known := make([]string, 0, len(status.DelegatedIpam.Pools))
	for _, p := range status.DelegatedIpam.Pools {
		known = append(known, p.Pool)
		if p.Pool == poolName(o.pool) {
			o.network = p.Network
		}
	}
	if o.network == "" {
		return fmt.Errorf("the network of pool %q is unknown; the sidecar has the pools %q, and knows the network of a pool once it has found a configuration; --cni-network names one", poolName(o.pool), known)
	}
	return nil
}
