package cli

import (
	"context"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/delegated-ipam/delegated-ipam/api/models"
)

const noFiles = cobra.ShellCompDirectiveNoFileComp

// addFlagCompletions completes the values of flags with a fixed set of values, and pools of the
// daemon.
func (d dependencies) addFlagCompletions(root *cobra.Command) {
	for _, cmd := range root.Commands() {
		d.addFlagCompletions(cmd)
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			var complete cobra.CompletionFunc
			if choices := strings.Split(f.Value.Type(), "|"); len(choices) > 1 {
				complete = cobra.FixedCompletions(choices, noFiles)
			} else if f.Name == "pool" && cmd.Flag("host") != nil {
				complete = d.completeQueried(pools)
			} else {
				return
			}
			// The only errors are a flag that does not exist and one that has a completion.
			_ = cmd.RegisterFlagCompletionFunc(f.Name, complete)
		})
	}
}

// completeQueried completes with words that query the daemon of the command line. Errors are
// dropped, because a shell cannot show them.
func (d dependencies) completeQueried(words func(context.Context, connection, *cobra.Command, []string) ([]string, error)) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		ctx, cancel := context.WithTimeout(context.Background(), d.completionLimit)
		defer cancel()
		c, err := d.connect(cmd.Flag("host").Value.String())
		if err != nil {
			return nil, noFiles
		}
		found, _ := words(ctx, c, cmd, args)
		return found, noFiles
	}
}

// completeListed completes each argument from the attachments of a pool, with the function at its
// place. Behind a tab a completion may have a description.
func (d dependencies) completeListed(byPlace ...func([]*models.Attachment) []string) cobra.CompletionFunc {
	return d.completeQueried(func(ctx context.Context, c connection, cmd *cobra.Command, args []string) ([]string, error) {
		if len(args) >= len(byPlace) {
			return nil, nil
		}
		all, err := c.listPool(ctx, poolName(cmd.Flag("pool").Value.String()))
		return byPlace[len(args)](all), err
	})
}

// pools returns the pools of the daemon.
func pools(ctx context.Context, c connection, _ *cobra.Command, _ []string) ([]string, error) {
	status, err := c.health(ctx)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, pool := range status.DelegatedIpam.Pools {
		out = append(out, cobra.CompletionWithDesc(pool.Pool, pool.Network))
	}
	return out, nil
}

// allocatedAddresses returns the addresses, each with its owner.
func allocatedAddresses(all []*models.Attachment) []string {
	var out []string
	for _, a := range all {
		for _, at := range a.Addresses {
			out = append(out, cobra.CompletionWithDesc(at.IP, a.Owner))
		}
	}
	return out
}

// owners returns the owners, sorted.
func owners(all []*models.Attachment) []string {
	var out []string
	for _, a := range all {
		out = append(out, a.Owner)
	}
	return slices.Compact(slices.Sorted(slices.Values(out)))
}
