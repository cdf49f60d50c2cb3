package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/delegated-ipam/delegated-ipam/cmd/internal/cmdline"
	"github.com/delegated-ipam/delegated-ipam/cmd/internal/output"
	"github.com/delegated-ipam/delegated-ipam/internal/daemon/attachment"
	"github.com/delegated-ipam/delegated-ipam/internal/daemon/journal"
	"github.com/delegated-ipam/delegated-ipam/internal/daemon/statedir"
	"github.com/delegated-ipam/delegated-ipam/internal/options"
)

func (d dependencies) journalCommand() *cobra.Command {
	return withCommands(&cobra.Command{
		Use:   "journal",
		Short: "List, copy and delete the records of a state directory",
		Long: `The journal has a record of each attachment (docs/design/state-directory.md). These commands
read the file of the state directory: the daemon need not run, and may run for "list" and
"backup".`,
		Example: `  delegated-ipam journal list
  delegated-ipam journal backup /root/journal.db
  delegated-ipam journal delete default/web-1 --yes`,
	}, d.journalListCommand(), d.journalBackupCommand(), d.journalDeleteCommand())
}

// listedJournal is a journal as `journal list -o json` prints it.
type listedJournal struct {
	journal.Metadata
	Records []attachment.Record `json:"records"`
	Damaged []damagedRecord     `json:"damaged"`
}

type damagedRecord struct {
	Owner  string `json:"owner"`
	Pool   string `json:"pool"`
	Reason string `json:"reason"`
}

func (d dependencies) journalListCommand() *cobra.Command {
	var format string
	return d.onStateDir(&cobra.Command{
		Use:   "list",
		Short: "List the records of a state directory",
		Long: `List the records of a state directory, also while its daemon runs. A running daemon
has more recent attachments only while it changes one; "delegated-ipam list" shows them. The
exit status is 1 without a journal, and if the file or a record is damaged; the next start
moves what is damaged to quarantine/.

With -o json the whole records are printed.`,
		Example: `  delegated-ipam journal list --state-dir=/var/lib/delegated-ipam`,
		Args:    args(),
	}, func(cmd *cobra.Command, stateDir string, _ []string) error {
		metadata, all, err := journal.Read(stateDir)
		if err == nil {
			err = journal.Written(stateDir, metadata)
		}
		if err != nil {
			return fmt.Errorf("journal list: %w", err)
		}
		listed := listedJournal{Metadata: metadata, Records: append([]attachment.Record{}, all.Records...), Damaged: []damagedRecord{}}
		for _, p := range all.Problems {
			listed.Damaged = append(listed.Damaged, damagedRecord{p.Owner, p.Pool, p.Reason.Error()})
		}
		err = output.Print(cmd.OutOrStdout(), format, listed, func(t output.Table) {
			t.Row("OWNER", "POOL", "STATE", "ADDRESSES", "CONTAINER-ID", "CHANGED")
			for _, r := range listed.Records {
				t.Row(r.Owner, r.Pool, string(r.State), journal.Addresses(r), r.IDInUse(), output.Ago(r.Changed, d.now()))
			}
		})
		for _, p := range listed.Damaged {
			err = errors.Join(err, fmt.Errorf("journal list: owner %q of pool %q: %s", p.Owner, p.Pool, p.Reason))
		}
		return err
	}, options.Output(&format))
}

func (d dependencies) journalBackupCommand() *cobra.Command {
	return d.onStateDir(&cobra.Command{
		Use:   "backup FILE",
		Short: "Copy the journal to a new file, also while the daemon runs",
		Long: `Copy the journal to a new file, which is as the journal was at one moment, and durable
when the command succeeds. The daemon may run meanwhile. An existing file is not replaced.

When a copy may be restored is in docs/operate/operations.md, Backup.`,
		Example: `  delegated-ipam journal backup /root/journal-$(date +%F).db`,
		Args:    args("FILE"),
	}, func(cmd *cobra.Command, stateDir string, given []string) error {
		n, err := journal.Backup(stateDir, given[0])
		if err != nil {
			return fmt.Errorf("journal backup: %w", err)
		}
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "copied %d records of %s to %s\n", n, stateDir, given[0])
		return err
	})
}

func (d dependencies) journalDeleteCommand() *cobra.Command {
	var pool string
	var yes bool
	return d.onStateDir(&cobra.Command{
		Use:   "delete OWNER --yes",
		Short: "Delete the record of an owner whose release the plugin refuses forever",
		Long: `Delete the record of an owner from the journal of a daemon that has stopped. The plugin is
not called, and may keep the addresses of the owner forever: the command prints what it may
keep. Start the daemon again afterwards.

While the daemon runs, the command fails and names its process.`,
		Example: `  delegated-ipam journal delete default/web-1 --yes`,
		Args:    args("OWNER"),
	}, func(cmd *cobra.Command, stateDir string, given []string) error {
		if !yes {
			return cmdline.Usagef("the plugin may keep the addresses of the owner forever; expected --yes to confirm it")
		}
		return deleteRecord(cmd, stateDir, poolName(pool), given[0])
	},
		poolOption(&pool, "pool of the owner"),
		options.Option{Name: "yes", Value: options.Bool(&yes), Help: "confirm the deletion, which is refused without it"})
}

// errDaemonRuns ends the wait for the lock of a state directory.
var errDaemonRuns = errors.New("stop the daemon, and run the command again")

func deleteRecord(cmd *cobra.Command, stateDir, pool, owner string) (err error) {
	existing, err := statedir.Open(stateDir) // Lock would create it
	if err != nil {
		return err
	}
	_ = existing.Close()
	ctx, cancel := context.WithCancelCause(cmd.Context())
	defer cancel(nil)
	dir, err := statedir.Lock(ctx, stateDir, statedir.Holder{Started: time.Now()}, func(string) { cancel(errDaemonRuns) })
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dir.Close()) }()
	j := journal.Open(dir, journal.Options{})
	defer j.Close()
	loaded, err := j.Load()
	if err != nil {
		return err
	}
	for _, r := range loaded.Records {
		if r.Owner != owner || r.Pool != pool {
			continue
		}
		if err := j.Remove(pool, owner); err != nil {
			return err
		}
		fmt.Fprintf(cmd.OutOrStdout(), "deleted %s; the plugin may keep its addresses\n", journal.Describe(r))
		for _, inv := range r.Invocations {
			fmt.Fprintf(cmd.OutOrStdout(), "  container ID %s, interface %s, network %s, plugin %s\n", inv.ContainerID, inv.IfName, inv.Network, inv.Plugin)
		}
		return nil
	}
	return fmt.Errorf("journal delete: the state directory %s has no record of owner %q in pool %q; `delegated-ipam journal list` shows those that it has", stateDir, owner, pool)
}
