package cli

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/delegated-ipam/delegated-ipam/api/models"
	"github.com/delegated-ipam/delegated-ipam/pkg/option"
	"github.com/delegated-ipam/delegated-ipam/pkg/ownermatch"
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

// gcCommand is `gc`.
func (p program) gcCommand() *cobra.Command {
	o := &gcOptions{}
	cmd := &cobra.Command{
		Use:   "gc",
		Short: "List attachments that nobody may need any more, and release them if told to",
		Long: `List the attachments that all the conditions given fit; with --yes release them.
Without a condition every attachment is listed, and --yes is refused: that would be
"release --all".

The sidecar does this never by itself: it cannot know whether an address is in use.

--unused-for looks at when a request last asked for the attachment. That is kept in
memory: after a restart of the sidecar it is not known, and such an attachment is
never taken for unused. An address can be in use without being asked for, so look at
the list before you add --yes.`,
		Example: `  # What pods that nobody has asked for within a day hold
  delegated-ipam gc --owner='default/*' --unused-for=24h

  # Release what was allocated without an owner more than an hour ago
  delegated-ipam gc --owner='anonymous/*' --older-than=1h --yes`,
		Args: takes(),
		RunE: func(cmd *cobra.Command, _ []string) error { return p.gc(cmd, *o) },
	}
	o.register(cmd, p.env)
	flags := cmd.Flags()
	flags.Var(textsValue(&o.owners, "patterns"), "owner", `owners to look at, "*" standing for any text; a list`)
	flags.Var(option.Text(&o.pool, "name"), "pool", "pool to look at; every one if not set")
	flags.Var(option.Duration(&o.olderThan), "older-than", "made at least this long ago")
	flags.Var(option.Duration(&o.unusedFor), "unused-for", "not asked for in this time, as far as that is known")
	option.AddSwitch(flags, &o.yes, "yes", "release them; without it they are only listed")
	return cmd
}

func (p program) gc(cmd *cobra.Command, o gcOptions) error {
	fits, err := o.condition(p.now())
	if err != nil {
		return err
	}
	ctx, c := cmd.Context(), p.connect(o.clientFlags)
	all, err := c.list(ctx)
	if err != nil {
		return fmt.Errorf("gc: %w", err)
	}
	found := make([]*models.Attachment, 0, len(all))
	for _, a := range all {
		if fits(a) {
			found = append(found, a)
		}
	}
	if !o.yes {
		return p.printFound(cmd, o, found)
	}
	asked := toRelease(found, false)
	done := p.sweeper(c, cmd, releaseTimeout, false).release(ctx, asked)
	if err := (releaseOptions{clientFlags: o.clientFlags}).printReleased(cmd.OutOrStdout(), done); err != nil {
		return err
	}
	if left := len(asked) - len(done); left > 0 {
		return fmt.Errorf("gc: %d of %d addresses were not released", left, len(asked))
	}
	return nil
}

// condition returns what tells whether an attachment is meant.
func (o gcOptions) condition(now time.Time) (func(*models.Attachment) bool, error) {
	if o.olderThan < 0 || o.unusedFor < 0 {
		return nil, option.WrongUsage("--older-than is %s and --unused-for is %s; expected 0s or more", o.olderThan, o.unusedFor)
	}
	if o.yes && len(o.owners) == 0 && o.pool == "" && o.olderThan == 0 && o.unusedFor == 0 {
		return nil, option.WrongUsage("--yes without a condition would release every attachment; expected --owner, --pool, --older-than or --unused-for, or `release --all --yes` if all is meant")
	}
	owners, err := ownermatch.Parse(o.owners)
	if err != nil {
		return nil, option.WrongUsage("--owner: %w", err)
	}
	return func(a *models.Attachment) bool {
		return (len(o.owners) == 0 || owners.Match(a.Owner)) &&
			(o.pool == "" || o.pool == a.Pool) &&
			now.Sub(time.Time(a.Created)) >= o.olderThan &&
			(o.unusedFor == 0 || a.LastUsed != nil && now.Sub(time.Time(*a.LastUsed)) >= o.unusedFor)
	}, nil
}

func (p program) printFound(cmd *cobra.Command, o gcOptions, found []*models.Attachment) error {
	if o.output == outputJSON {
		return printJSON(cmd.OutOrStdout(), found)
	}
	t := newTable(cmd.OutOrStdout())
	t.row("OWNER", "POOL", "STATE", "ADDRESSES", "CLAIMS", "AGE", "LAST-USED", "CONTAINER-ID")
	now := p.now()
	for _, a := range byPoolAndOwner(found) {
		used := "unknown"
		if a.LastUsed != nil {
			used = ago(time.Time(*a.LastUsed), now)
		}
		t.row(a.Owner, a.Pool, a.State, addresses(a), strings.Join(a.Claims, ","), length(now.Sub(time.Time(a.Created))), used, a.ContainerID)
	}
	_, err := fmt.Fprintf(cmd.ErrOrStderr(), "%d attachments; nothing was released (--yes releases them)\n", len(found))
	return errors.Join(t.flush(), err)
}
