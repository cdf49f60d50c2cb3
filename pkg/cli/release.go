package cli

import (
	"context"
	"fmt"
	"net/http"

	"github.com/spf13/cobra"

	"github.com/delegated-ipam/delegated-ipam/client/ipam"
	"github.com/delegated-ipam/delegated-ipam/pkg/option"
)

// releaseOptions are the flags of `release`.
type releaseOptions struct {
	clientFlags
	pool     string
	all, yes bool
}

// released is what `release -o json` prints of each address.
type released struct {
	IP   string `json:"ip"`
	Pool string `json:"pool"`
}

// line is what it prints otherwise.
func (r released) line() string { return fmt.Sprintf("released %s of pool %s", r.IP, r.Pool) }

// releaseCommand is `release`.
func (p program) releaseCommand() *cobra.Command {
	o := &releaseOptions{}
	cmd := &cobra.Command{
		Use:   "release {IP | --all --yes}",
		Short: "Take addresses back",
		Long: `Take an address back. When none of its owner's addresses is handed out any
more, the plugin gets them back, too (with serve --release-delay, later). Nobody is
asked whether the address is in use.

With --all every address in every pool is taken back, those of the agent itself
included, as before the sidecar is removed from a node. It waits until the plugin has
everything, and ends with status 1 naming what remains when nothing more has gone
away for 90 seconds, as with a longer serve --release-delay.`,
		Example: `  # One address
  delegated-ipam release 10.15.0.2

  # Everything, before this node stops using delegated-ipam
  delegated-ipam release --all --yes`,
		Args: o.arguments,
		RunE: func(cmd *cobra.Command, args []string) error {
			if o.all {
				return p.releaseAll(cmd, *o)
			}
			return p.release(cmd, *o, args[0])
		},
	}
	o.register(cmd, p.env)
	flags := cmd.Flags()
	flags.Var(option.Text(&o.pool, "name"), "pool", `pool that the address is of (default "default")`)
	option.AddSwitch(flags, &o.all, "all", "take back every address in every pool")
	option.AddSwitch(flags, &o.yes, "yes", "mean it; --all does nothing without it")
	return cmd
}

// arguments takes either an address or --all.
func (o *releaseOptions) arguments(cmd *cobra.Command, args []string) error {
	switch {
	case o.all && (len(args) > 0 || o.pool != ""):
		return option.WrongUsage("--all takes back every address in every pool; expected no address and no --pool beside it")
	case o.all && !o.yes:
		return option.WrongUsage("--all takes back every address of this node, in use or not; expected --yes beside it if that is meant")
	case o.all:
		return nil
	case o.yes:
		return option.WrongUsage("--yes is for --all; expected both or neither")
	case len(args) == 0:
		return option.WrongUsage("IP is missing; expected an address, or --all --yes for every one")
	}
	return takes("IP")(cmd, args)
}

func (p program) release(cmd *cobra.Command, o releaseOptions, ip string) error {
	r := released{ip, poolName(o.pool)}
	if err := p.connect(o.clientFlags).release(cmd.Context(), r); err != nil {
		return fmt.Errorf("release %s: %w", ip, err)
	}
	return o.printOutcome(cmd.OutOrStdout(), r, r.line())
}

func (c connection) release(ctx context.Context, r released) error {
	params := ipam.NewDeleteIpamIPParams().WithTimeout(c.limit).WithIP(r.IP).WithPool(&r.Pool)
	_, err := c.Ipam.DeleteIpamIPContext(ctx, params)
	return c.explain(ctx, err, meanings{
		http.StatusBadRequest:     notAnAddress(r.IP),
		http.StatusForbidden:      callerRefused,
		http.StatusNotFound:       fmt.Sprintf("address %s is not handed out in pool %q, or there is no such pool; `delegated-ipam list` shows what is", r.IP, r.Pool),
		http.StatusNotImplemented: familyOff(r.IP),
	})
}
