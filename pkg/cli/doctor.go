package cli

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/delegated-ipam/delegated-ipam/pkg/doctor"
	"github.com/delegated-ipam/delegated-ipam/pkg/option"
)

// doctorOptions are the flags of `doctor`.
type doctorOptions struct {
	clientFlags
	repair bool
}

// doctorCommand is `doctor`.
func (p program) doctorCommand() *cobra.Command {
	o := &doctorOptions{}
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Compare the sidecar with the plugin's own files, and say what to do",
		Long: `Compare what the sidecar says with what the plugin's own files say.

  CHECK  sidecar      it answers and is ready
         store        the plugin's files are found and can be read
         empty-files  no file of a killed host-local bars an address for nobody
         leases       the files and the sidecar's list have the same addresses
  STATE  ok, warning (something is wasted) or error

The files are read where the sidecar's configuration says that they are, so run it
with the mounts and as the user of the sidecar. Only host-local's files are known.

The exit status is 0 if every state is ok, else 1.`,
		Example: `  delegated-ipam doctor

  # Remove the files that a killed host-local left without a container ID
  delegated-ipam doctor --repair

  # The addresses that such files bar
  delegated-ipam doctor -o json | jq -r '.[] | select(.check == "empty-files" and .state != "ok") | .address'`,
		Args: takes(),
		RunE: func(cmd *cobra.Command, _ []string) error { return p.doctor(cmd, *o) },
	}
	o.register(cmd, p.env)
	option.AddSwitch(cmd.Flags(), &o.repair, "repair", "remove files without a container ID, under host-local's own lock")
	return cmd
}

func (p program) doctor(cmd *cobra.Command, o doctorOptions) error {
	found := p.connect(o.clientFlags).examine(cmd.Context(), o.repair).Findings()
	if err := o.printFindings(cmd.OutOrStdout(), found); err != nil {
		return err
	}
	if worst := doctor.Worst(found); worst != doctor.OK {
		return fmt.Errorf("doctor: not all is well; the worst of %d findings is: %s", len(found), worst)
	}
	return nil
}

// examine asks the sidecar, and looks at the files between its two lists.
func (c connection) examine(ctx context.Context, repair bool) doctor.Sight {
	status, err := c.health(ctx)
	if err != nil {
		return doctor.Sight{StatusErr: err}
	}
	s := doctor.Sight{Status: status.DelegatedIpam}
	s.Before, s.ListErr = c.list(ctx)
	s.Stores = c.lookAt(ctx, s, repair)
	if s.ListErr == nil {
		s.After, s.ListErr = c.list(ctx)
	}
	return s
}

// lookAt waits for a lock of the plugin no longer than for the sidecar.
func (c connection) lookAt(ctx context.Context, s doctor.Sight, repair bool) []doctor.Store {
	ctx, cancel := context.WithTimeout(ctx, c.limit)
	defer cancel()
	return doctor.LookAt(ctx, s.Status.Pools, repair)
}

func (f clientFlags) printFindings(w io.Writer, found []doctor.Finding) error {
	if f.output == outputJSON {
		return printJSON(w, found)
	}
	t := newTable(w)
	t.row("CHECK", "POOL", "STATE", "SEEN", "WHAT TO DO")
	for _, f := range found {
		t.row(string(f.Check), f.Pool, string(f.State), oneLine(f.Seen), oneLine(f.Do))
	}
	return t.flush()
}
