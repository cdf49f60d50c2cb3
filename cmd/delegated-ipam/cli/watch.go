package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/delegated-ipam/delegated-ipam/api/models"
	"github.com/delegated-ipam/delegated-ipam/cmd/internal/output"
	"github.com/delegated-ipam/delegated-ipam/internal/daemon/attachment"
	"github.com/delegated-ipam/delegated-ipam/internal/logging"
	"github.com/delegated-ipam/delegated-ipam/internal/options"
)

// change is a line of `list --watch -o json`.
type change struct {
	Time       time.Time          `json:"time"`
	Change     string             `json:"change"`
	Attachment *models.Attachment `json:"attachment"`
}

const (
	changeAdded   = "added"
	changeChanged = "changed"
	changeRemoved = "removed"
)

// watch prints every attachment, and then each change, until the context ends. It outlasts a restart of the daemon.
func (d dependencies) watch(cmd *cobra.Command, c connection, o listOptions) error {
	var before []*models.Attachment
	for first, failing := true, false; ; first = false {
		all, err := c.matching(cmd.Context(), o)
		switch {
		case cmd.Context().Err() != nil:
			return nil
		case err != nil && first:
			return fmt.Errorf("list: %w", err)
		case err != nil && !failing:
			fmt.Fprintf(cmd.ErrOrStderr(), "list: %s; the watch continues\n", logging.Printable(err.Error()))
		case err == nil:
			if err := printChanges(cmd.OutOrStdout(), changes(before, all, d.now()), o.output == options.OutputJSON); err != nil {
				return err
			}
			before = all
		}
		failing = err != nil
		if d.untilPoll(cmd.Context()) != nil {
			return nil
		}
	}
}

// changes returns what differs between two lists, in the order of their owners.
func changes(before, after []*models.Attachment, now time.Time) (all []change) {
	left := map[attachment.Key]*models.Attachment{}
	for _, a := range before {
		left[attachment.Key{Pool: a.Pool, Owner: a.Owner}] = a
	}
	sortAttachments(after)
	for _, a := range after {
		k := attachment.Key{Pool: a.Pool, Owner: a.Owner}
		switch last := left[k]; {
		case last == nil:
			all = append(all, change{now, changeAdded, a})
		case shown(last) != shown(a):
			all = append(all, change{now, changeChanged, a})
		}
		delete(left, k)
	}
	removed := slices.Collect(maps.Values(left))
	sortAttachments(removed)
	for _, a := range removed {
		all = append(all, change{now, changeRemoved, a})
	}
	return all
}

// shown is the part of an attachment whose change is one.
func shown(a *models.Attachment) string {
	return fmt.Sprint(a.ContainerID, a.State, ips(a), a.Claims, a.GivenUp, a.Lost, a.LastError, a.Range)
}

func printChanges(w io.Writer, all []change, asJSON bool) error {
	t := output.NewTable(w)
	for _, c := range all {
		if asJSON {
			if err := json.NewEncoder(w).Encode(c); err != nil {
				return err
			}
			continue
		}
		state, lines := c.Attachment.State, shortLines(ips(c.Attachment))
		if c.Change == changeRemoved {
			state = "-"
		}
		// As wide as the longest ones, so that all changes are aligned.
		t.Row(c.Time.Format(time.TimeOnly), fmt.Sprintf("%-7s", c.Change), fmt.Sprintf("%-9s", state), c.Attachment.Owner, lines[0])
		for _, line := range lines[1:] {
			t.Below(3, line)
		}
	}
	t.Shrink(3, minOwner)
	return t.Flush()
}
