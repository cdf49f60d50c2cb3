package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/delegated-ipam/delegated-ipam/api/models"
	"github.com/delegated-ipam/delegated-ipam/cmd/internal/output"
	"github.com/delegated-ipam/delegated-ipam/internal/containerid"
	"github.com/delegated-ipam/delegated-ipam/internal/daemon/attachment"
	"github.com/delegated-ipam/delegated-ipam/internal/daemon/uninstall"
	"github.com/delegated-ipam/delegated-ipam/internal/logging"
	"github.com/delegated-ipam/delegated-ipam/pkg/client"
)

// releaseAll releases all listed attachments but those of containers, and waits until the list is empty. A failed release
// does not end it: the daemon retries, and the result has the remaining ones.
func (d dependencies) releaseAll(cmd *cobra.Command, c connection, o releaseOptions) error {
	ctx := cmd.Context()
	all, err := d.listWithin(ctx, c, o.wait, cmd.ErrOrStderr())
	// A daemon that hangs listens.
	if o.stateDir != "" && (errors.Is(err, syscall.ENOENT) || errors.Is(err, syscall.ECONNREFUSED)) {
		if err := uninstall.InUse(o.stateDir, false, time.Now()); err != nil {
			return fmt.Errorf("release --all: no process listens on %s, and the state directory %s is in use: %w", c.Socket(), o.stateDir, err)
		}
		_, err = fmt.Fprintf(cmd.ErrOrStderr(), "no process listens on %s, and %s has no record to release\n", c.Socket(), o.stateDir)
		return err
	}
	if err != nil {
		return fmt.Errorf("release --all: %w", err)
	}
	if lines := ahead(all); len(lines) > 0 {
		return fmt.Errorf("release --all: nothing was released: %s", strings.Join(lines, "\n"))
	}
	all = withoutContainers(all)
	done := d.releaseEach(cmd, c, releasable(all, true), true, o.timeout)
	if err := o.printReleased(cmd.OutOrStdout(), done); err != nil {
		return err
	}
	spooled := d.waitDrained(cmd, c, o.timeout)
	left, err := d.waitUntilEmpty(cmd, c, o)
	if err != nil {
		return fmt.Errorf("release --all: %w", err)
	}
	lines := remaining(left)
	if spooled != nil {
		lines = append(lines, spooled.Error())
	}
	if len(lines) > 0 {
		return fmt.Errorf("release --all: %s", strings.Join(lines, "\n"))
	}
	return nil
}

// ahead returns what the daemon acquired ahead of pods and keeps for them, with what to do; nothing if there is none. What
// is in cooldown or being released ends without a DEL of a runtime.
func ahead(all []*models.Attachment) (lines []string) {
	warm := 0
	var lent []string
	for _, a := range all {
		switch {
		case a.State == models.AttachmentStateCooldown || a.State == models.AttachmentStateReleasing:
		case attachment.IsWarm(a.Owner):
			warm++
		case attachment.OfContainer(a.Owner) && containerid.Match(a.ContainerID):
			lent = append(lent, "  "+a.Owner+" of pool "+a.Pool)
		}
	}
	if warm > 0 {
		lines = append(lines, fmt.Sprintf("%d leases were acquired ahead of pods: start the daemon with --warm-leases=0, which releases them, and run the command again", warm))
	}
	if len(lent) > 0 {
		lines = append(lines, fmt.Sprintf("%d containers have leases that were acquired ahead, and the plugin knows them by IDs of the daemon: drain the node, so that their DELs reach the daemon, and run the command again:", len(lent)))
	}
	return append(lines, lent...)
}

// withoutContainers omits the attachments of containers: their runtime releases them, through the daemon
// or without it, and until then their addresses are in use. It need not release those in cooldown or releasing.
func withoutContainers(all []*models.Attachment) []*models.Attachment {
	return slices.DeleteFunc(all, func(a *models.Attachment) bool {
		return attachment.OfContainer(a.Owner) && a.State != models.AttachmentStateCooldown && a.State != models.AttachmentStateReleasing
	})
}

// listWithin lists the attachments, and repeats a request that fails until wait has passed. The
// first error is printed.
func (d dependencies) listWithin(ctx context.Context, c connection, wait time.Duration, stderr io.Writer) ([]*models.Attachment, error) {
	if wait == 0 {
		return c.list(ctx)
	}
	begun, reported := d.now(), false
	for {
		all, err := c.list(ctx)
		if err == nil || d.now().Sub(begun) >= wait {
			return all, err
		}
		if !reported {
			reported = true
			fmt.Fprintf(stderr, "waiting for the daemon, at most %s: %s\n", output.Duration(wait), logging.Printable(err.Error()))
		}
		if d.untilPoll(ctx) != nil {
			return nil, err
		}
	}
}

// untilPoll waits for the time of the next list; an error is the end of ctx.
func (d dependencies) untilPoll(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d.pollInterval):
		return nil
	}
}

// releaseEach releases addresses, one after the other, and returns those that it has released. The
// errors of the others are printed to stderr. It continues until nothing was released for timeout,
// because each request to a plugin that hangs takes long, and there may be hundreds; with 0 it
// requests each of them.
func (d dependencies) releaseEach(cmd *cobra.Command, c connection, all []released, skipDelay bool, timeout time.Duration) []released {
	done := make([]released, 0, len(all))
	last := d.now()
	for i, r := range all {
		if cmd.Context().Err() != nil {
			break
		}
		if waited := d.now().Sub(last); timeout > 0 && waited > timeout {
			fmt.Fprintf(cmd.ErrOrStderr(), "%d of %d addresses were not requested, because nothing was released for %s\n", len(all)-i, len(all), output.Duration(waited))
			break
		}
		// An address that its owner has no more has been released meanwhile.
		if err := c.release(cmd.Context(), r, skipDelay); err != nil && !errors.Is(err, client.ErrNotFound) {
			fmt.Fprintf(cmd.ErrOrStderr(), "release %s of pool %s: %s\n", r.IP, r.Pool, logging.Printable(err.Error()))
			continue
		}
		done = append(done, r)
		last = d.now()
	}
	return done
}

// releasable returns the addresses of all attachments that a request can release. An attachment without any address ends
// automatically.
func releasable(all []*models.Attachment, skipDelay bool) []released {
	var out []released
	for _, a := range all {
		out = append(out, releasedOf(a.Pool, a.Owner, client.Releasable(a, skipDelay))...)
	}
	return out
}

func releasedOf(pool, owner string, ips []netip.Addr) []released {
	out := []released{}
	for _, ip := range ips {
		out = append(out, released{ip.String(), pool, owner})
	}
	return out
}

func (f clientFlags) printReleased(w io.Writer, done []released) error {
	var lines []string
	for _, r := range done {
		lines = append(lines, r.line())
	}
	return f.printOutcome(w, done, lines...)
}

// waitUntilEmpty waits until the list is empty, and returns the remaining attachments after the
// timeout without progress.
func (d dependencies) waitUntilEmpty(cmd *cobra.Command, c connection, o releaseOptions) ([]*models.Attachment, error) {
	ctx := cmd.Context()
	fewest, changed := -1, d.now()
	limit := changed.Add(o.wait)
	for {
		left, err := d.listWithin(ctx, c, o.wait, cmd.ErrOrStderr())
		left = withoutContainers(left)
		if err != nil || len(left) == 0 {
			return nil, err
		}
		if fewest < 0 || len(left) < fewest {
			fewest, changed = len(left), d.now()
		}
		if until := actsUntil(left); until.After(changed) && !until.After(limit) {
			changed = until // its last DEL follows
		}
		if d.now().Sub(changed) >= o.timeout {
			return left, nil
		}
		if d.untilPoll(ctx) != nil {
			return nil, errors.New("interrupted; `delegated-ipam list` shows what remains")
		}
	}
}

// actsUntil returns the last moment at which an ADD of the attachments may act; zero for none.
func actsUntil(all []*models.Attachment) (last time.Time) {
	for _, a := range all {
		if a.ActsUntil != nil && time.Time(*a.ActsUntil).After(last) {
			last = time.Time(*a.ActsUntil)
		}
	}
	return last
}

// remaining returns a headline and a line for each attachment, with its last error if there is one;
// nothing if there is none.
func remaining(all []*models.Attachment) []string {
	if len(all) == 0 {
		return nil
	}
	failed := false
	out := []string{fmt.Sprintf("%d attachments remain:", len(all))}
	for _, a := range all {
		line := fmt.Sprintf("  %s of pool %s (%s, container ID %s)", a.Owner, a.Pool, a.State, a.ContainerID)
		if a.LastError != "" {
			line += ": " + logging.OneLine(a.LastError)
			failed = true
		}
		out = append(out, line)
	}
	if until := actsUntil(all); !until.IsZero() {
		out = append(out, fmt.Sprintf("until %s an ADD with an unknown outcome may act, and only then its last DEL follows: repeat the command then, or give it a --wait that ends later", until.UTC().Format(time.RFC3339)))
	}
	if failed {
		out = append(out, "the daemon keeps retrying; if the plugin refuses forever: stop it and run `delegated-ipam journal delete OWNER --yes`")
	}
	return out
}
