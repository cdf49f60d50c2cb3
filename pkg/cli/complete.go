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

// completeLimit is how long a person who pressed Tab waits for the sidecar.
const completeLimit = time.Second

// words complete a command line; behind a tab each may say what it stands for.
type words = []string

// complete lets the shell complete what only the sidecar knows, and the words of
// flags that take one of a few. Without a sidecar nothing is offered, and nothing
// said: a completion has no place for an error.
func (p program) complete(root *cobra.Command) {
	arguments := map[string]func(*cobra.Command, int) words{
		"release":  p.first(heldAddresses),
		"allocate": p.first(owners),
		"id":       p.first(owners),
		"restore":  p.then(heldAddresses, owners),
	}
	for _, cmd := range root.Commands() {
		if offer := arguments[cmd.Name()]; offer != nil {
			cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, _ string) (words, cobra.ShellCompDirective) {
				return offer(cmd, len(args)), cobra.ShellCompDirectiveNoFileComp
			}
		}
		cmd.Flags().VisitAll(func(f *pflag.Flag) { p.completeFlag(cmd, f) })
	}
}

// completeFlag completes the value of a flag.
func (p program) completeFlag(cmd *cobra.Command, f *pflag.Flag) {
	var offer cobra.CompletionFunc
	if choices := strings.Split(f.Value.Type(), "|"); len(choices) > 1 {
		offer = cobra.FixedCompletions(choices, cobra.ShellCompDirectiveNoFileComp)
	} else if f.Name == "pool" && cmd.Flags().Lookup("host") != nil {
		offer = func(cmd *cobra.Command, _ []string, _ string) (words, cobra.ShellCompDirective) {
			return p.pools(cmd), cobra.ShellCompDirectiveNoFileComp
		}
	}
	if offer != nil {
		// It fails for a flag that is not there, and for one that has a completion.
		_ = cmd.RegisterFlagCompletionFunc(f.Name, offer)
	}
}

// first completes the first argument with what the list gives.
func (p program) first(of func([]*models.Attachment, string) words) func(*cobra.Command, int) words {
	return p.then(of)
}

// then completes the arguments one after the other with what the list gives.
func (p program) then(of ...func([]*models.Attachment, string) words) func(*cobra.Command, int) words {
	return func(cmd *cobra.Command, given int) words {
		if given >= len(of) {
			return nil
		}
		c, ctx, cancel := p.quickly(cmd)
		defer cancel()
		all, err := c.list(ctx)
		if err != nil {
			return nil
		}
		pool := ""
		if f := cmd.Flags().Lookup("pool"); f != nil {
			pool = f.Value.String()
		}
		return of[given](all, poolName(pool))
	}
}

// quickly connects to the sidecar that the command line names so far.
func (p program) quickly(cmd *cobra.Command) (connection, context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(context.Background(), completeLimit)
	return p.connect(clientFlags{host: cmd.Flags().Lookup("host").Value.String()}), ctx, cancel
}

// pools are the pools of the sidecar.
func (p program) pools(cmd *cobra.Command) words {
	c, ctx, cancel := p.quickly(cmd)
	defer cancel()
	status, err := c.health(ctx)
	if err != nil {
		return nil
	}
	var out words
	for _, pool := range status.DelegatedIpam.Pools {
		out = append(out, cobra.CompletionWithDesc(pool.Pool, pool.Network))
	}
	return out
}

// heldAddresses are the addresses in a pool that are handed out or on their way
// back, each with its owner.
func heldAddresses(all []*models.Attachment, pool string) words {
	var out words
	for _, a := range all {
		for _, at := range a.Addresses {
			if a.Pool == pool {
				out = append(out, cobra.CompletionWithDesc(at.IP, a.Owner))
			}
		}
	}
	return out
}

// owners are those who hold something in a pool.
func owners(all []*models.Attachment, pool string) words {
	var out words
	for _, a := range all {
		if a.Pool == pool {
			out = append(out, a.Owner)
		}
	}
	return slices.Compact(slices.Sorted(slices.Values(out)))
}
