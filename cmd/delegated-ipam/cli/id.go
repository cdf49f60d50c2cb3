package cli

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/delegated-ipam/delegated-ipam/api/models"
	"github.com/delegated-ipam/delegated-ipam/internal/containerid"
	"github.com/delegated-ipam/delegated-ipam/internal/daemon/attachment"
	"github.com/delegated-ipam/delegated-ipam/internal/options"
)

// idOptions are the flags of `id`.
type idOptions struct {
	clientFlags
	pool, node, network string
}

// identified is the output of `id -o json`.
type identified struct {
	ContainerID string `json:"container-id"`
	// InUse reports that the daemon lists the ID; otherwise it is computed.
	InUse bool `json:"in-use"`
	// note has the inputs of a computed ID, or that it is the runtime's.
	note string
}

func (d dependencies) idCommand() *cobra.Command {
	o := &idOptions{}
	return d.connected(&cobra.Command{
		Use:   "id OWNER",
		Short: "Print the container ID of an owner",
		Long: `Print the container ID (CNI_CONTAINERID) under which the plugin knows an owner.

For an owner that has an attachment it is the ID in use, as in list, with its suffix: an
owner gets a new ID (-gN, or -u and random digits) while an earlier DEL may still act on
the old one. Otherwise the ID of a new attachment is computed from the owner and the names
of node and network, and a note on standard error reports that.

With --node-name or --cni-network the ID is always computed, for that node and network,
and the other name is that of the daemon. With both no daemon is needed.

For the interface of a container (cni/ID/INTERFACE) it is the ID of the container runtime,
which is never changed.`,
		Example: `  # The files of host-local for the router
  grep -rl "$(delegated-ipam id router)" /var/lib/cni/networks

  # Without a daemon
  delegated-ipam id router --node-name worker-1 --cni-network pods`,
		Args:              args("OWNER"),
		ValidArgsFunction: d.completeListed(owners),
	}, &o.clientFlags, func(cmd *cobra.Command, c connection, args []string) error {
		id, err := c.identify(cmd.Context(), *o, args[0])
		if err != nil {
			return fmt.Errorf("id %s: %w", args[0], err)
		}
		if id.note != "" {
			fmt.Fprintln(cmd.ErrOrStderr(), id.note)
		}
		return o.printOutcome(cmd.OutOrStdout(), id, id.ContainerID)
	},
		poolOption(&o.pool, "pool of the attachment"),
		options.Option{Name: "node-name", Value: options.Text(&o.node, "name"), Help: "name of the node (empty = node of the daemon)"},
		options.Option{Name: "cni-network", Value: options.Text(&o.network, "name"), Help: "name of the CNI network (empty = network of the pool)"})
}

// identify returns the ID in use, or the ID of a new attachment.
func (c connection) identify(ctx context.Context, o idOptions, owner string) (identified, error) {
	why := "computed: the ID in use may have a suffix (-gN or -u...), which list shows"
	var all []*models.Attachment
	if o.node == "" && o.network == "" {
		why = fmt.Sprintf("computed: the owner has no attachment in pool %q, and a new one may get a suffix (-gN or -u...)", poolName(o.pool))
		var err error
		if all, err = c.list(ctx); err != nil {
			return identified{}, err
		}
	}
	if id := attachment.RuntimeID(owner); id != "" {
		used := slices.ContainsFunc(all, func(a *models.Attachment) bool { return a.Owner == owner })
		return identified{ContainerID: id, InUse: used, note: "the container runtime's own ID: no other one is used for this owner"}, nil
	}
	if id := usedID(all, owner, poolName(o.pool)); id != "" {
		return identified{ContainerID: id, InUse: true}, nil
	}
	if o.node == "" || o.network == "" {
		status, err := c.health(ctx)
		if err != nil {
			return identified{}, err
		}
		pool := poolInStatus(status, o.pool)
		if id := usedID(all, owner, pool); id != "" {
			return identified{ContainerID: id, InUse: true}, nil
		}
		o.node = cmp.Or(o.node, status.DelegatedIpam.NodeName)
		for _, p := range status.DelegatedIpam.Pools {
			if p.Pool == pool {
				o.network = cmp.Or(o.network, p.Network)
			}
		}
		if o.network == "" {
			return identified{}, fmt.Errorf("the network of pool %q is unknown; the daemon has the pools %q, and knows the network of a pool once it has found a configuration; --cni-network names one", pool, poolNames(status))
		}
	}
	note := fmt.Sprintf("%s (node %q, network %q)", why, o.node, o.network)
	return identified{ContainerID: containerid.For(owner, o.node, o.network), note: note}, nil
}

// usedID returns the ID of the attachment of an owner in a pool, empty if there is none.
func usedID(all []*models.Attachment, owner, pool string) string {
	for _, a := range all {
		if a.Owner == owner && a.Pool == pool {
			return a.ContainerID
		}
	}
	return ""
}
