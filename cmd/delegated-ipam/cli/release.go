package cli

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/spf13/cobra"

	"github.com/delegated-ipam/delegated-ipam/api/models"
	"github.com/delegated-ipam/delegated-ipam/cmd/internal/cmdline"
	"github.com/delegated-ipam/delegated-ipam/internal/options"
	"github.com/delegated-ipam/delegated-ipam/pkg/client"
)

// releaseOptions are the flags of `release`.
type releaseOptions struct {
	clientFlags
	pool     string
	all, yes bool
	// skipDelay overrides serve --release-delay with 0s.
	skipDelay bool
	// timeout is how long --all waits without progress.
	timeout time.Duration
	// wait is how long --all waits for the daemon to respond.
	wait time.Duration
	// stateDir is the state directory of a daemon that need not run if it has no record there; empty for one
	// that must run.
	stateDir string
}

// released is an address as `release -o json` prints it.
type released struct {
	IP   string `json:"ip"`
	Pool string `json:"pool"`
	// owner had it in the list; empty for an address that was not listed.
	owner string
}

// line returns the address as `release` prints it without -o json.
func (r released) line() string { return fmt.Sprintf("released %s of pool %s", r.IP, r.Pool) }

func (d dependencies) releaseCommand() *cobra.Command {
	o := &releaseOptions{}
	return d.connected(&cobra.Command{
		Use:   "release {IP | OWNER | --all --yes}",
		Short: "Release addresses",
		Long: `Release an address, or all addresses of an owner in one pool. When its owner holds no
other address, they are returned to the plugin: immediately, or after serve --release-delay
unless --skip-release-delay is given. Whether the address is in use is not checked.

With --all every address in every pool is released, those of the agent itself included,
for a node from which the daemon will be removed. --release-delay does not apply then,
also not to addresses in cooldown. The command waits until the plugin has released
everything, and ends with status 1 and a list of the remaining attachments after --timeout
without progress. The daemon keeps retrying; run the command again for the result.

Before a removal on all nodes, --wait bounds how long the command waits for a daemon
that does not answer yet. With --state-dir it is a success that none listens on the socket
even then, if this state directory has no record to release.

For an attachment whose release the plugin refuses forever there is "journal delete".`,
		Example: `  # One address
  delegated-ipam release 10.15.0.2

  # Both families of an owner
  delegated-ipam release router

  # Everything, before this node stops using delegated-ipam
  delegated-ipam release --all --yes`,
		Args:              o.args,
		ValidArgsFunction: d.completeListed(func(all []*models.Attachment) []string { return append(allocatedAddresses(all), owners(all)...) }),
	}, &o.clientFlags, func(cmd *cobra.Command, c connection, args []string) error {
		if o.all {
			return d.releaseAll(cmd, c, *o)
		}
		if _, err := netip.ParseAddr(args[0]); err != nil {
			return o.releaseOwner(cmd, c, args[0])
		}
		r := released{IP: args[0], Pool: poolName(o.pool)}
		if err := c.release(cmd.Context(), r, o.skipDelay); err != nil {
			return fmt.Errorf("release %s: %w", r.IP, err)
		}
		return o.printOutcome(cmd.OutOrStdout(), r, r.line())
	},
		poolOption(&o.pool, "pool of the addresses"),
		options.Option{Name: "all", Value: options.Bool(&o.all), Help: "release every address in every pool"},
		options.Option{Name: "yes", Value: options.Bool(&o.yes), Help: "confirm --all, which is refused without it"},
		options.Option{
			Name: "skip-release-delay", Value: options.Bool(&o.skipDelay),
			Help: "return the address to the plugin immediately, also one that is already in cooldown; implied by --all",
		},
		options.Option{
			Name: "timeout", Value: options.Delay(&o.timeout), Default: client.DefaultTimeout.String(),
			Help: "how long --all continues without progress (0s = request each address once and do not wait)",
		},
		options.Option{
			Name: "wait", Value: options.Delay(&o.wait), Default: "0s",
			Help: "how long --all waits for a daemon that does not answer, and until no ADD with an unknown outcome can act (0s = do not wait)",
		},
		options.Option{
			Name: "state-dir", Value: options.Path(&o.stateDir),
			Help: "for --all: end with status 0 if no process listens on the socket and this directory has no record to release",
		})
}

// args accepts either an address or --all.
func (o *releaseOptions) args(cmd *cobra.Command, given []string) error {
	switch {
	case o.all && (len(given) > 0 || o.pool != ""):
		return cmdline.Usagef("--all releases every address in every pool; expected no address and no --pool with it")
	case !o.all && (o.wait > 0 || o.stateDir != ""):
		return cmdline.Usagef("--wait and --state-dir are for --all; expected --all --yes with them")
	case o.all && !o.yes:
		return cmdline.Usagef("--all releases every address of this node, in use or not; expected --yes to confirm it")
	case o.all:
		return nil
	case o.yes:
		return cmdline.Usagef("--yes is for --all; expected it with --all only")
	case len(given) == 0:
		return cmdline.Usagef("IP or OWNER is missing; expected an address or an owner, or --all --yes for every address")
	}
	_, err := netip.ParseAddr(given[0])
	if _, prefixErr := netip.ParsePrefix(given[0]); err == nil || prefixErr == nil {
		return args("IP")(cmd, given)
	}
	return args("OWNER")(cmd, given)
}

// releaseOwner releases the addresses of an owner, and prints them also if others failed.
func (o *releaseOptions) releaseOwner(cmd *cobra.Command, c connection, owner string) error {
	ips, err := c.ReleaseOwner(cmd.Context(), owner, client.ReleaseOptions{Pool: o.pool, SkipReleaseDelay: o.skipDelay})
	if err != nil {
		err = fmt.Errorf("release %s: %w", owner, c.explain(cmd.Context(), err))
	}
	if len(ips) == 0 {
		return err
	}
	return errors.Join(err, o.printReleased(cmd.OutOrStdout(), releasedOf(poolName(o.pool), owner, ips)))
}

func (c connection) release(ctx context.Context, r released, skipDelay bool) error {
	address, _ := netip.ParseAddr(r.IP) // was checked: an argument by args, and the others by the client
	return c.explain(ctx, c.Release(ctx, address, client.ReleaseOptions{Pool: r.Pool, Owner: r.owner, SkipReleaseDelay: skipDelay}))
}
