package cli

import (
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/delegated-ipam/delegated-ipam/api/models"
	"github.com/delegated-ipam/delegated-ipam/cmd/internal/cmdline"
	"github.com/delegated-ipam/delegated-ipam/cmd/internal/output"
	"github.com/delegated-ipam/delegated-ipam/internal/daemon/attachment"
	"github.com/delegated-ipam/delegated-ipam/internal/options"
	"github.com/delegated-ipam/delegated-ipam/internal/ownermatch"
	"github.com/delegated-ipam/delegated-ipam/pkg/client"
)

// gcOptions are the flags of `gc`.
type gcOptions struct {
	clientFlags
	owners    []string
	pool      string
	olderThan time.Duration
	unusedFor time.Duration
	yes       bool
}

func (d dependencies) gcCommand() *cobra.Command {
	o := &gcOptions{}
	return d.connected(&cobra.Command{
		Use:   "gc",
		Short: "List attachments that may be unused, and release them with --yes",
		Long: `List the attachments that match all conditions; with --yes release them. Without a
condition every attachment is listed, and --yes is refused: that would be
"release --all".

The daemon never does this automatically: it cannot know whether an address is in use.
Attachments of containers match only with --owner and a pattern that begins with cni/.

--unused-for compares the time of the last request for the attachment. That is kept in
memory: after a restart of the daemon it is unknown, and such an attachment never
matches. An address can be in use without requests, so check the list before you add
--yes.`,
		Example: `  # Attachments of pods without a request for a day
  delegated-ipam gc --owner='default/*' --unused-for=24h

  # Release what was allocated without an owner more than an hour ago
  delegated-ipam gc --owner='anonymous/*' --older-than=1h --yes`,
		Args: args(),
	}, &o.clientFlags, func(cmd *cobra.Command, c connection, _ []string) error { return d.gc(cmd, c, *o) },
		options.Option{Name: "owner", Value: options.Texts(&o.owners, "patterns"), Help: `list of patterns of owners, where "*" matches any text (empty = every owner)`},
		options.Option{Name: "pool", Value: options.Text(&o.pool, "name"), Help: "pool of the attachments (empty = every pool)"},
		options.Option{Name: "older-than", Value: options.Delay(&o.olderThan), Default: "0s", Help: "minimum age of the attachments"},
		options.Option{Name: "unused-for", Value: options.Delay(&o.unusedFor), Default: "0s", Help: "minimum time since the last request, as far as that is known (0s = any)"},
		options.Option{Name: "yes", Value: options.Bool(&o.yes), Help: "release the attachments instead of listing them"})
}

func (d dependencies) gc(cmd *cobra.Command, c connection, o gcOptions) error {
	ofOwner, err := o.validate()
	if err != nil {
		return err
	}
	all, err := c.listPool(cmd.Context(), o.pool)
	if err != nil {
		return fmt.Errorf("gc: %w", err)
	}
	now := d.now()
	matching := slices.DeleteFunc(all, func(a *models.Attachment) bool { return !o.matches(a, ofOwner, now) })
	if !o.yes {
		return o.printMatching(cmd, matching, now)
	}
	addresses := releasable(matching, false)
	done := d.releaseEach(cmd, c, addresses, false, client.DefaultTimeout)
	if err := o.printReleased(cmd.OutOrStdout(), done); err != nil {
		return err
	}
	if left := len(addresses) - len(done); left > 0 {
		return fmt.Errorf("gc: %d of %d addresses were not released", left, len(addresses))
	}
	return nil
}

// validate returns whether an owner matches --owner, or a usage error. A container matches only the patterns
// that name containers: its age says nothing about its use.
func (o gcOptions) validate() (func(owner string) bool, error) {
	if o.yes && len(o.owners) == 0 && o.pool == "" && o.olderThan == 0 && o.unusedFor == 0 {
		return nil, cmdline.Usagef("--yes without a condition would release every attachment; expected --owner, --pool, --older-than or --unused-for, or `release --all --yes` to release everything")
	}
	owners, err := ownermatch.Parse(o.owners)
	if err != nil {
		return nil, cmdline.Usagef("--owner: %w", err)
	}
	others := func(pattern string) bool { return !attachment.OfContainer(pattern) }
	containers, err := ownermatch.Parse(slices.DeleteFunc(slices.Clone(o.owners), others))
	return func(owner string) bool {
		if attachment.OfContainer(owner) {
			return containers.Match(owner)
		}
		return len(o.owners) == 0 || owners.Match(owner)
	}, err
}

// matches reports whether an attachment matches all conditions but the pool.
func (o gcOptions) matches(a *models.Attachment, ofOwner func(string) bool, now time.Time) bool {
	return ofOwner(a.Owner) &&
		(o.olderThan == 0 || now.Sub(time.Time(a.Created)) >= o.olderThan) &&
		(o.unusedFor == 0 || a.LastUsed != nil && now.Sub(time.Time(*a.LastUsed)) >= o.unusedFor)
}

func (o gcOptions) printMatching(cmd *cobra.Command, matching []*models.Attachment, now time.Time) error {
	err := output.Print(cmd.OutOrStdout(), o.output, matching, func(t output.Table) {
		sortAttachments(matching)
		wide(t, matching, now, "LAST-USED", "CONTAINER-ID", func(a *models.Attachment) (string, string) {
			if a.LastUsed == nil {
				return "unknown", a.ContainerID
			}
			return output.Ago(time.Time(*a.LastUsed), now), a.ContainerID
		})
	})
	if o.output != options.OutputJSON {
		fmt.Fprintf(cmd.ErrOrStderr(), "%d attachments; nothing was released (--yes releases them)\n", len(matching))
	}
	return err
}
