package cli

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"time"

	"github.com/spf13/cobra"

	"github.com/delegated-ipam/delegated-ipam/pkg/client"
	"github.com/delegated-ipam/delegated-ipam/pkg/option"
)

// releaseTimeout is as long as one request may take (pkg/client of Cilium).
const releaseTimeout = 90 * time.Second

// releaseOptions are the flags of `release`.
type releaseOptions struct {
	clientFlags
	pool     string
	all, yes bool
	// skipDelay gives back at once, whatever serve --release-delay says.
	skipDelay bool
	// timeout is how long --all waits while nothing goes away.
	timeout time.Duration
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
	o := &releaseOptions{timeout: releaseTimeout}
	cmd := &cobra.Command{
		Use:   "release {IP | --all --yes}",
		Short: "Take addresses back",
		Long: `Take an address back. When none of its owner's addresses is handed out any
more, the plugin gets them back, too: at once, or at the end of serve --release-delay
unless --skip-release-delay is given. Nobody is asked whether the address is in use.

With --all every address in every pool is taken back, those of the agent itself
included, as before the sidecar is removed from a node. --release-delay does not count
then, nor for what was released before. It waits until the plugin has everything, and
ends with status 1 naming what remains when nothing more has gone away for --timeout.
The sidecar goes on trying; run it again to be told.`,
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
	option.AddSwitch(flags, &o.skipDelay, "skip-release-delay", "let the plugin have the address back at once, also one that is released already and waits; --all does so by itself")
	flags.Var(option.Duration(&o.timeout), "timeout", "how long --all goes on while nothing more goes away; with 0s it asks for each address once and waits for nothing")
	return cmd
}

// arguments takes either an address or --all.
func (o *releaseOptions) arguments(cmd *cobra.Command, args []string) error {
	switch {
	case o.all && (len(args) > 0 || o.pool != ""):
		return option.WrongUsage("--all takes back every address in every pool; expected no address and no --pool beside it")
	case o.timeout < 0:
		return option.WrongUsage("--timeout is %s; expected 0s or more", o.timeout)
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
	if err := p.connect(o.clientFlags).release(cmd.Context(), r, o.skipDelay); err != nil {
		return fmt.Errorf("release %s: %w", ip, err)
	}
	return o.printOutcome(cmd.OutOrStdout(), r, r.line())
}

func (c connection) release(ctx context.Context, r released, skipDelay bool) error {
	return c.explainRelease(ctx, c.remove(ctx, r, skipDelay), r)
}

// remove asks for a release; the error is as the client gives it.
func (c connection) remove(ctx context.Context, r released, skipDelay bool) error {
	api, err := c.client()
	if err != nil {
		return err
	}
	// The argument was checked before (takes), or is the sidecar's own.
	address, _ := netip.ParseAddr(r.IP)
	return api.Release(ctx, address, client.ReleaseOptions{Pool: r.Pool, SkipReleaseDelay: skipDelay})
}

func (c connection) explainRelease(ctx context.Context, err error, r released) error {
	return c.explain(ctx, err, meanings{
		http.StatusBadRequest:     notAnAddress(r.IP),
		http.StatusForbidden:      callerRefused,
		http.StatusNotFound:       fmt.Sprintf("address %s is not handed out in pool %q, or there is no such pool; `delegated-ipam list` shows what is", r.IP, r.Pool),
		http.StatusNotImplemented: familyOff(r.IP),
	})
}
