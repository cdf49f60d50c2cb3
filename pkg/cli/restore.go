package cli

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"

	"github.com/spf13/cobra"

	"github.com/delegated-ipam/delegated-ipam/pkg/client"
	"github.com/delegated-ipam/delegated-ipam/pkg/option"
)

// restoreOptions are the flags of `restore`.
type restoreOptions struct {
	clientFlags
	pool string
}

// restored is what `restore -o json` prints.
type restored struct {
	IP    string `json:"ip"`
	Owner string `json:"owner"`
	Pool  string `json:"pool"`
}

// restoreCommand is `restore`.
func (p program) restoreCommand() *cobra.Command {
	o := &restoreOptions{}
	cmd := &cobra.Command{
		Use:   "restore IP OWNER",
		Short: "Hand out one particular address to an owner",
		Long: `Hand out exactly this address to an owner, or fail.

It succeeds if the owner holds the address already, or if the plugin can still give
this very address. Nothing is kept of any other address that the plugin gives
instead. IP is without a prefix length.`,
		Example: `  # The address that the router had before
  delegated-ipam restore 10.15.0.2 router`,
		Args: takes("IP", "OWNER"),
		RunE: func(cmd *cobra.Command, args []string) error { return p.restore(cmd, *o, args[0], args[1]) },
	}
	o.register(cmd, p.env)
	cmd.Flags().Var(option.Text(&o.pool, "name"), "pool", `pool that the address is of (default "default")`)
	return cmd
}

func (p program) restore(cmd *cobra.Command, o restoreOptions, ip, owner string) error {
	if err := p.connect(o.clientFlags).restore(cmd.Context(), o, ip, owner); err != nil {
		return fmt.Errorf("restore %s for %s: %w", ip, owner, err)
	}
	return o.printOutcome(cmd.OutOrStdout(), restored{ip, owner, poolName(o.pool)}, fmt.Sprintf("restored %s for %s", ip, owner))
}

func (c connection) restore(ctx context.Context, o restoreOptions, ip, owner string) error {
	api, err := c.client()
	if err != nil {
		return err
	}
	// The argument was checked before (takes).
	address, _ := netip.ParseAddr(ip)
	return c.explain(ctx, api.Restore(ctx, address, owner, client.RestoreOptions{Pool: o.pool}), meanings{
		http.StatusBadRequest:     notAnAddress(ip),
		http.StatusForbidden:      notAdmitted(owner),
		http.StatusConflict:       fmt.Sprintf("address %s of pool %q belongs to another owner; `delegated-ipam list` shows whose it is", ip, poolName(o.pool)),
		http.StatusNotImplemented: familyOff(ip),
	})
}
