package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/delegated-ipam/delegated-ipam/api/models"
	"github.com/delegated-ipam/delegated-ipam/cmd/internal/output"
	"github.com/delegated-ipam/delegated-ipam/internal/logging"
	"github.com/delegated-ipam/delegated-ipam/pkg/client"
)

// releaseAll releases all listed attachments and waits until the list is empty. A failed release does
// not end it: the sidecar retries, and the result has the remaining ones. Records of a newer version
// are not listed, and remain.
func (d dependencies) releaseAll(cmd *cobra.Command, o releaseOptions) error {
	ctx, c := cmd.Context(), d.connect(o.clientFlags)
	all, err := d.listWithin(ctx, c, o.wait, cmd.ErrOrStderr())
	if o.ifRunning && notListening(err) {
		_, err := fmt.Fprintf(cmd.ErrOrStderr(), "no process listens on %s, so nothing was released; `delegated-ipam uninstall` checks the journal\n", c.socket)
		return err
	}
	if err != nil {
		return fmt.Errorf("release --all: %w", err)
	}
	done := d.bulkRelease(c, cmd, o.timeout, true).release(ctx, releasable(all, true))
	if err := o.printReleased(cmd.OutOrStdout(), done); err != nil {
		return err
	}
	left, err := d.waitUntilEmpty(cmd, c, o)
	if err != nil {
		return fmt.Errorf("release --all: %w", err)
	}
	if all := append(remaining(left), c.newerRecords(ctx)...); len(all) > 0 {
		return fmt.Errorf("release --all: %s", strings.Join(all, "\n"))
	}
	return nil
}

// newerRecords returns a headline and a line for each record of a newer version, which keeps its
// addresses and is not in the list; nothing if there is none.
func (c connection) newerRecords(ctx context.Context) []string {
	status, err := c.health(ctx)
	if err != nil {
		return []string{fmt.Sprintf("it is unknown whether records of a newer version remain: %s", err)}
	}
	var lines []string
	for _, q := range status.DelegatedIpam.Quarantined {
		if q.Version > 0 {
			lines = append(lines, fmt.Sprintf("  %s: %s", q.File, output.OneLine(q.Reason)))
		}
	}
	if len(lines) == 0 {
		return nil
	}
	return append([]string{fmt.Sprintf("%d records were not released; start the delegated-ipam that wrote them, and run its `delegated-ipam release --all --yes`:", len(lines))}, lines...)
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
			fmt.Fprintf(stderr, "waiting for the sidecar, at most %s: %s\n", output.Duration(wait), logging.Printable(err.Error()))
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(d.pollInterval):
		}
	}
}

// notListening reports whether an error is that no process listens on the socket. A sidecar that
// hangs listens.
func notListening(err error) bool {
	return errors.Is(err, syscall.ENOENT) || errors.Is(err, syscall.ECONNREFUSED)
}

// bulkRelease releases many addresses, one after the other.
type bulkRelease struct {
	connection
	skipDelay bool
	// timeout is how long it continues without a successful release: each request to a plugin
	// that hangs takes long, and there may be hundreds. 0 means to request each of them.
	timeout time.Duration
	now     func() time.Time
	stderr  io.Writer
}

func (d dependencies) bulkRelease(c connection, cmd *cobra.Command, timeout time.Duration, skipDelay bool) bulkRelease {
	return bulkRelease{c, skipDelay, timeout, d.now, cmd.ErrOrStderr()}
}

// release returns the addresses that were released, and prints the errors of the others to stderr.
func (b bulkRelease) release(ctx context.Context, all []released) []released {
	done := make([]released, 0, len(all))
	last := b.now()
	for i, r := range all {
		if ctx.Err() != nil {
			break
		}
		if waited := b.now().Sub(last); b.timeout > 0 && waited > b.timeout {
			fmt.Fprintf(b.stderr, "%d of %d addresses were not requested, because nothing was released for %s\n", len(all)-i, len(all), output.Duration(waited))
			break
		}
		if err := b.releaseOne(ctx, r); err != nil {
			fmt.Fprintf(b.stderr, "release %s of pool %s: %s\n", r.IP, r.Pool, logging.Printable(err.Error()))
			continue
		}
		done = append(done, r)
		last = b.now()
	}
	return done
}

// releaseOne releases an address. One that is not allocated any more has been released meanwhile.
func (b bulkRelease) releaseOne(ctx context.Context, r released) error {
	err := b.remove(ctx, r, b.skipDelay)
	if errors.Is(err, client.ErrNotFound) {
		return nil
	}
	return b.explainRelease(ctx, err, r)
}

// releasable returns the addresses to request: the allocated ones and, of an attachment that no
// client holds, one, if requesting it has an effect: the sidecar releases one that keeps an excluded
// address, immediately retries one that is releasing, and with skipDelay ends a cooldown. An attachment without any address ends
// automatically.
func releasable(all []*models.Attachment, skipDelay bool) []released {
	var out []released
	for _, a := range all {
		again := a.Excluded || a.State == models.AttachmentStateReleasing || skipDelay && a.State == models.AttachmentStateCooldown
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

func (f clientFlags) printReleased(w io.Writer, done []released) error {
	if f.output == outputJSON {
		return output.JSON(w, done)
	}
	for _, r := range done {
		if _, err := fmt.Fprintln(w, r.line()); err != nil {
			return err
		}
	}
	return nil
}

// waitUntilEmpty waits until the list is empty, and returns the remaining attachments after the
// timeout without progress.
func (d dependencies) waitUntilEmpty(cmd *cobra.Command, c connection, o releaseOptions) ([]*models.Attachment, error) {
	ctx := cmd.Context()
	fewest, changed := -1, d.now()
	for {
		left, err := d.listWithin(ctx, c, o.wait, cmd.ErrOrStderr())
		if err != nil || len(left) == 0 {
			return nil, err
		}
		if fewest < 0 || len(left) < fewest {
			fewest, changed = len(left), d.now()
		}
		if d.now().Sub(changed) >= o.timeout {
			return left, nil
		}
		select {
		case <-ctx.Done():
			return nil, errors.New("interrupted; `delegated-ipam list` shows what remains")
		case <-time.After(d.pollInterval):
		}
	}
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
			line += ": " + output.OneLine(a.LastError)
			failed = true
		}
		out = append(out, line)
	}
	if failed {
		out = append(out, "the sidecar keeps retrying; if the plugin refuses forever: `delegated-ipam release --discard OWNER --yes`")
	}
	return out
}
