package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/delegated-ipam/delegated-ipam/cmd/internal/output"
	"github.com/delegated-ipam/delegated-ipam/internal/daemon/doctor"
	"github.com/delegated-ipam/delegated-ipam/internal/files"
	"github.com/delegated-ipam/delegated-ipam/internal/logging"
	"github.com/delegated-ipam/delegated-ipam/pkg/client"
)

// leakReport is the file of `doctor --report`: the leases of the daemon without an attachment, which `doctor --repair`
// releases after a review.
type leakReport struct {
	Created time.Time `json:"created"`
	Node    string    `json:"node"`
	// Review is what the reader must know before the leases are released.
	Review string           `json:"review"`
	Leases []doctor.Finding `json:"leases"`
}

const (
	review = "Each address is free for others after its release. The owner is in the container ID. Remove each lease whose owner still uses the address: after a lost journal, owners get theirs again with their next request."
	// standardStream is the FILE for standard output or input.
	standardStream = "-"
	maxReport      = 64 << 20
	reportMode     = 0o600
)

// leaks returns the findings of leases without an attachment.
func leaks(all []doctor.Finding) []doctor.Finding {
	return slices.DeleteFunc(slices.Clone(all), func(f doctor.Finding) bool { return f.Lease == nil })
}

// writeReport writes the leaks to a new file, or to standard output.
func (d dependencies) writeReport(cmd *cobra.Command, file, node string, found []doctor.Finding) (err error) {
	w := cmd.OutOrStdout()
	if file != standardStream {
		f, openErr := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, reportMode)
		if openErr != nil {
			return fmt.Errorf("doctor: --report: %w", openErr)
		}
		defer func() { err = errors.Join(err, f.Close()) }()
		w = f
	}
	r := leakReport{Created: d.now(), Node: node, Review: review, Leases: append([]doctor.Finding{}, found...)}
	if err := output.JSON(w, r); err != nil {
		return fmt.Errorf("doctor: --report: %w", err)
	}
	_, err = fmt.Fprintf(cmd.ErrOrStderr(), "the report has %d leases; `doctor --repair --report %s` releases those that are in it\n", len(found), file)
	return err
}

// readReport reads a report of this node.
func readReport(cmd *cobra.Command, file, node string) (r leakReport, err error) {
	var data []byte
	if file == standardStream {
		data, err = io.ReadAll(io.LimitReader(cmd.InOrStdin(), maxReport))
	} else {
		data, err = files.Read(file, maxReport)
	}
	if err == nil {
		err = json.Unmarshal(data, &r)
	}
	if err == nil && r.Node != node {
		err = fmt.Errorf("the report is of node %q, and the daemon is %q", r.Node, node)
	}
	if err != nil {
		return r, fmt.Errorf("doctor: --report is %q: %w; expected a file that `delegated-ipam doctor --report FILE` has written on this node", file, err)
	}
	return r, nil
}

// releaseLeaks releases the leases of a report that are leaks as they were then. The daemon refuses what has an owner now.
func (c connection) releaseLeaks(ctx context.Context, stderr io.Writer, reported, found []doctor.Finding) error {
	var failed error
	for _, r := range reported {
		ip, err := netip.ParseAddr(r.Address)
		same := func(f doctor.Finding) bool {
			return f.Address == r.Address && f.Pool == r.Pool && r.Lease != nil && f.Lease.ContainerID == r.Lease.ContainerID && f.Lease.Written.Equal(r.Lease.Written)
		}
		switch {
		case err == nil && !slices.ContainsFunc(found, same):
			fmt.Fprintf(stderr, "skipped %s: no leak any more, or not the one of the report\n", ip)
			continue
		case err == nil:
			err = c.explain(ctx, c.Release(ctx, ip, client.ReleaseOptions{Pool: r.Pool, Lease: r.Lease.ContainerID}))
		}
		if err != nil {
			failed = errors.Join(failed, fmt.Errorf("doctor: %s was not released: %w", logging.Printable(r.Address), err))
			continue
		}
		fmt.Fprintf(stderr, "released %s (container ID %s)\n", ip, r.Lease.ContainerID)
	}
	return failed
}
