package cli

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/delegated-ipam/delegated-ipam/cmd/internal/output"
	"github.com/delegated-ipam/delegated-ipam/pkg/client"
)

// discard releases the attachment of an owner, or makes the sidecar forget it, and prints what the
// plugin may keep.
func (d dependencies) discard(cmd *cobra.Command, o releaseOptions, owner string) error {
	c := d.connect(o.clientFlags)
	api, err := c.client()
	if err != nil {
		return err
	}
	left, err := api.Discard(cmd.Context(), owner, client.DiscardOptions{Pool: o.pool})
	if err != nil {
		return fmt.Errorf("release --discard: %w", c.explain(cmd.Context(), err, nil))
	}
	if o.output == outputJSON {
		return output.JSON(cmd.OutOrStdout(), left)
	}
	w, pool := cmd.OutOrStdout(), poolName(o.pool)
	if len(left) == 0 {
		_, err := fmt.Fprintf(w, "released %s of pool %s\n", owner, pool)
		return err
	}
	_, err = fmt.Fprintf(w, "discarded %s of pool %s; the plugin may keep its addresses until a DEL succeeds:\n", owner, pool)
	for _, l := range left {
		_, lineErr := fmt.Fprintf(w, "container ID %s, interface %s, network %s, plugin %s\n  run: %s\n", l.ContainerID, l.Interface, l.Network, l.Plugin, l.Command)
		err = errors.Join(err, lineErr)
	}
	return err
}
