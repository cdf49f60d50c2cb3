package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/delegated-ipam/delegated-ipam/api/models"
	"github.com/delegated-ipam/delegated-ipam/pkg/client"
	"github.com/delegated-ipam/delegated-ipam/pkg/option"
)

// releaseAll takes back whatever the sidecar lists, and waits until it lists
// nothing. A release that fails is no end: the sidecar goes on trying, and what
// counts is what remains.
func (p program) releaseAll(cmd *cobra.Command, o releaseOptions) error {
	ctx, c := cmd.Context(), p.connect(o.clientFlags)
	all, err := c.list(ctx)
	if err != nil {
		return fmt.Errorf("release --all: %w", err)
	}
	done := p.sweeper(c, cmd, o.timeout, true).release(ctx, toRelease(all, true))
	if err := o.printReleased(cmd.OutOrStdout(), done); err != nil {
		return err
	}
	left, err := p.untilEmpty(ctx, c, o.timeout)
	if err != nil {
		return fmt.Errorf("release --all: %w", err)
	}
	if len(left) > 0 {
		return fmt.Errorf("release --all: %d attachments remain:\n%s", len(left), strings.Join(texts(left), "\n"))
	}
	return nil
}

// sweep releases many addresses, one after the other.
type sweep struct {
	connection
	skipDelay bool
	// patience is how long it goes on while nothing is released: each request to a
	// plugin that hangs takes long, and there may be hundreds. With 0 each is asked for.
	patience time.Duration
	now      func() time.Time
	stderr   io.Writer
}

func (p program) sweeper(c connection, cmd *cobra.Command, patience time.Duration, skipDelay bool) sweep {
	return sweep{c, skipDelay, patience, p.now, cmd.ErrOrStderr()}
}

// release returns what was released; why the rest was not goes to stderr.
func (s sweep) release(ctx context.Context, all []released) []released {
	done := make([]released, 0, len(all))
	last := s.now()
	for i, r := range all {
		if ctx.Err() != nil {
			break
		}
		if waited := s.now().Sub(last); s.patience > 0 && waited > s.patience {
			fmt.Fprintf(s.stderr, "%d of %d addresses were not asked for, because nothing was released for %s\n", len(all)-i, len(all), length(waited))
			break
		}
		if err := s.one(ctx, r); err != nil {
			fmt.Fprintf(s.stderr, "release %s of pool %s: %s\n", r.IP, r.Pool, option.Printable(err.Error()))
			continue
		}
		done = append(done, r)
		last = s.now()
	}
	return done
}

// one releases an address. One that is not handed out any more went away by itself.
func (s sweep) one(ctx context.Context, r released) error {
	err := s.remove(ctx, r, s.skipDelay)
	if errors.Is(err, client.ErrNotFound) {
		return nil
	}
	return s.explainRelease(ctx, err, r)
}

// toRelease are the addresses to take back: those that are handed out and, of an
// attachment that nobody holds any more, one, if asking for it does something: the
// sidecar tries a releasing one again now, and with skipDelay ends the wait of a
// cooldown one. An attachment without any address ends by itself.
func toRelease(all []*models.Attachment, skipDelay bool) []released {
	var out []released
	for _, a := range all {
		again := a.State == models.AttachmentStateReleasing || skipDelay && a.State == models.AttachmentStateCooldown
		for _, at := range a.Addresses {
			if again || slices.Contains(a.Claims, at.Family) {
				out = append(out, released{at.IP, a.Pool})
			}
			if again {
				break
			}
		}
	}
	return out
}

func (o releaseOptions) printReleased(w io.Writer, done []released) error {
	if o.output == outputJSON {
		return printJSON(w, done)
	}
	for _, r := range done {
		if _, err := fmt.Fprintln(w, r.line()); err != nil {
			return err
		}
	}
	return nil
}

// untilEmpty waits until nothing is listed, and returns what still is after
// nothing more went away for that long.
func (p program) untilEmpty(ctx context.Context, c connection, patience time.Duration) ([]*models.Attachment, error) {
	fewest, changed := -1, p.now()
	for {
		left, err := c.list(ctx)
		if err != nil || len(left) == 0 {
			return nil, err
		}
		if fewest < 0 || len(left) < fewest {
			fewest, changed = len(left), p.now()
		}
		if p.now().Sub(changed) >= patience {
			return left, nil
		}
		select {
		case <-ctx.Done():
			return nil, errors.New("interrupted; `delegated-ipam list` shows what remains")
		case <-time.After(p.pollEvery):
		}
	}
}

// texts name attachments, each with why it is still there as far as that is known.
func texts(all []*models.Attachment) []string {
	out := make([]string, len(all))
	for i, a := range all {
		out[i] = fmt.Sprintf("  %s of pool %s (%s, container ID %s)", a.Owner, a.Pool, a.State, a.ContainerID)
		if a.LastError != "" {
			out[i] += ": " + oneLine(a.LastError)
		}
	}
	return out
}
