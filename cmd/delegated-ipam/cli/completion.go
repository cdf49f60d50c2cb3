package cli

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/delegated-ipam/delegated-ipam/api/models"
)

// completionTimeout is how long a completion waits for the sidecar.
const completionTimeout = time.Second

// completionFunc returns the completions of an argument, by the number of arguments before it.
// Behind a tab a completion may have a description.
type completionFunc func(cmd *cobra.Command, given int) []string

// listedFunc returns completions from the attachments of a pool.
type listedFunc func(all []*models.Attachment, pool string) []string

// addCompletions completes values of the sidecar, and flags with a fixed set of values. Without a
// sidecar the former are missing; errors are dropped, because a shell cannot show them.
func (d dependencies) addCompletions(root *cobra.Command) {
	arguments := map[string]completionFunc{
		"release":  d.completeListed(allocatedAddresses),
		"allocate": d.completeListed(owners),
		"id":       d.completeListed(owners),
		"restore":  d.completeListed(allocatedAddresses, owners),
	}
	all := root.Commands()
	for _, cmd := range root.Commands() {
		all = append(all, cmd.Commands()...)
	}
	for _, cmd := range all {
		if complete := arguments[cmd.Name()]; complete != nil {
			cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
				return complete(cmd, len(args)), cobra.ShellCompDirectiveNoFileComp
			}
		}
		cmd.Flags().VisitAll(func(f *pflag.Flag) { d.completeFlag(cmd, f) })
	}
}

// completeFlag completes the value of a flag.
func (d dependencies) completeFlag(cmd *cobra.Command, f *pflag.Flag) {
	var complete cobra.CompletionFunc
	if choices := strings.Split(f.Value.Type(), "|"); len(choices) > 1 {
		complete = cobra.FixedCompletions(choices, cobra.ShellCompDirectiveNoFileComp)
	} else if f.Name == "pool" && cmd.Flags().Lookup("host") != nil {
		complete = func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
			return d.pools(cmd), cobra.ShellCompDirectiveNoFileComp
		}
	}
	if complete != nil {
		// The only errors are a flag that does not exist and one that has a completion.
		_ = cmd.RegisterFlagCompletionFunc(f.Name, complete)
	}
}

// completeListed completes each argument with the function at its place.
func (d dependencies) completeListed(byPlace ...listedFunc) completionFunc {
	return func(cmd *cobra.Command, given int) []string {
		if given >= len(byPlace) {
			return nil
		}
		c, ctx, cancel := d.connectBriefly(cmd)
		defer cancel()
		all, err := c.list(ctx)
		if err != nil {
			return nil
		}
		pool := ""
		if f := cmd.Flags().Lookup("pool"); f != nil {
			pool = f.Value.String()
		}
		if pool, err = c.listedPool(ctx, pool, all); err != nil {
			return nil
		}
		return byPlace[given](all, pool)
	}
}

// connectBriefly connects to the sidecar of the command line, for the time of a completion.
func (d dependencies) connectBriefly(cmd *cobra.Command) (connection, context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(context.Background(), completionTimeout)
	return d.connect(clientFlags{host: cmd.Flags().Lookup("host").Value.String()}), ctx, cancel
}

// pools returns the pools of the sidecar.
func (d dependencies) pools(cmd *cobra.Command) []string {
	c, ctx, cancel := d.connectBriefly(cmd)
	defer cancel()
	status, err := c.health(ctx)
	if err != nil {
		return nil
	}
	var out []string
	for _, pool := range status.DelegatedIpam.Pools {
		out = append(out, cobra.CompletionWithDesc(pool.Pool, pool.Network))
	}
	return out
}

// allocatedAddresses returns the addresses in a pool, each with its owner.
func allocatedAddresses(all []*models.Attachment, pool string) []string {
	var out []string
	for _, a := range all {
		for _, at := range a.Addresses {
			if a.Pool == pool {
				out = append(out, cobra.CompletionWithDesc(at.IP, a.Owner))
			}
		}
	}
	return out
}

// owners returns the owners of attachments in a pool.
func owners(all []*models.Attachment, pool string) []string {
	var out []string
	for _, a := range all {
		if a.Pool == pool {
			out = append(out, a.Owner)
		}
	}
	return slices.Compact(slices.Sorted(slices.Values(out)))
}
