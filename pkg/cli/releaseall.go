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
	done := c.releaseEach(ctx, toRelease(all, true), true, cmd.ErrOrStderr())
	if err := o.printReleased(cmd.OutOrStdout(), done); err != nil {
		return err
	}
	left, err := p.untilEmpty(ctx, c, o.timeout)
	if err != nil {
		return fmt.Errorf("release --all: %w", err)
	}
	if len(left) > 0 {
		return fmt.Errorf("release --all: %d attachments remain: %s", len(left), strings.Join(texts(left), "; "))
	}
	return nil
}

// releaseEach returns what was released; why the rest was not goes to stderr.
func (c connection) releaseEach(ctx context.Context, all []released, skipDelay bool, stderr io.Writer) []released {
	done := make([]released, 0, len(all))
	for _, r := range all {
		if ctx.Err() != nil {
			break
		}
		if err := c.release(ctx, r, skipDelay); err != nil {
			fmt.Fprintf(stderr, "release %s of pool %s: %v\n", r.IP, r.Pool, err)
			continue
		}
		done = append(done, r)
	}
	return done
}

// toRelease are the addresses to take back: those that are handed out and, of an
// attachment that nobody holds any more, one, if asking for it does something: the
// sidecar tries a releasing one again now, and with skipDelay ends the wait of a
// cooling one. An attachment without any address ends by itself.
func toRelease(all []*models.Attachment, skipDelay bool) []released {
	var out []released
	for _, a := range all {
		again := a.State == models.AttachmentStateReleasing || skipDelay && a.State == models.AttachmentStateCooling
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
		out[i] = fmt.Sprintf("%s of pool %s (%s, container ID %s)", a.Owner, a.Pool, a.State, a.ContainerID)
		if a.LastError != "" {
			out[i] += ": " + oneLine(a.LastError)
		}
	}
	return out
}
