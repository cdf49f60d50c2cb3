package cli

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/delegated-ipam/delegated-ipam/pkg/doctor"
	"github.com/delegated-ipam/delegated-ipam/pkg/option"
)

// warned is the exit status of a doctor that has found nothing worse than warnings: 1
// and 2 are what every command fails with.
const warned = 3

// doctorOptions are the flags of `doctor`.
type doctorOptions struct {
	clientFlags
	repair bool
	// own are the options that serve would have here.
	own ownOptions
}

// doctorCommand is `doctor`.
func (p program) doctorCommand() *cobra.Command {
	o := &doctorOptions{}
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Look at all that the sidecar stands on, and say what to do",
		Long: `Look at the sidecar, its folders and socket, the CNI configuration, the plugin and
the plugin's own files, and say of each what was seen and what to do. Nothing is
changed without --repair, and no plugin verb but VERSION is run.

While the sidecar runs, its own options are gone by. Before that, those that serve
would have: doctor takes every flag of serve (see "serve --help"), its environment
variables and --config-dir. Run it where the sidecar runs, with its mounts and as its
user. docs/doctor.md lists the checks.

STATE is ok, warning (something is wasted or in danger some day) or error. The exit
status is 0 if every state is ok, 1 if there is an error, and 3 if there are only
warnings.`,
		Example: `  # In the sidecar's container
  delegated-ipam doctor

  # Before the first start, with the options that serve will have
  delegated-ipam doctor --config-dir=/etc/delegated-ipam --cni-bin-dir=/usr/lib/cni

  # Remove the files that a killed host-local left without a container ID
  delegated-ipam doctor --repair

  # The addresses that such files bar
  delegated-ipam doctor -o json | jq -r '.[] | select(.check == "empty-files" and .state != "ok") | .address'`,
		Args: takes(),
		RunE: func(cmd *cobra.Command, _ []string) error { return p.doctor(cmd, *o) },
	}
	o.own.env = p.env
	o.own.serve, o.own.flags = p.addServeOptions(cmd.Flags())
	// Shown, they would hide the few flags of doctor itself.
	cmd.Flags().VisitAll(func(f *pflag.Flag) { f.Hidden = true })
	o.register(cmd, p.env)
	option.AddSwitch(cmd.Flags(), &o.repair, "repair", "remove files without a container ID, under host-local's own lock")
	return cmd
}

func (p program) doctor(cmd *cobra.Command, o doctorOptions) error {
	own := o.own.find(cmd.Flags())
	if !cmd.Flags().Changed("host") && own.socket != "" {
		o.host = own.socket
	}
	found := p.connect(o.clientFlags).examine(cmd.Context(), own, o.repair).Findings()
	if err := o.printFindings(cmd.OutOrStdout(), found); err != nil {
		return err
	}
	worst := doctor.Worst(found)
	err := fmt.Errorf("doctor: not all is well; the worst of %d findings is: %s", len(found), worst)
	switch worst {
	case doctor.OK:
		return nil
	case doctor.Warning:
		return &option.Status{Code: warned, Err: err}
	}
	return err
}

// examine asks the sidecar, and looks at everything else between its two lists.
func (c connection) examine(ctx context.Context, own found, repair bool) doctor.Sight {
	answer, err := c.health(ctx)
	s := doctor.Sight{StatusErr: err}
	if err == nil {
		s.Status = answer.DelegatedIpam
		s.Before, s.ListErr = c.list(ctx)
	}
	config, options := own.compare(s.Status)
	s.Options = options
	ctxLook, cancel := context.WithTimeout(ctx, c.limit) // a lock of the plugin is waited for no longer
	defer cancel()
	if config != nil {
		n := doctor.LookAtNode(ctxLook, *config, c.socket, s.Status)
		s.Node = &n
	}
	s.Stores = doctor.LookAt(ctxLook, s.Pools(), repair)
	if err == nil && s.ListErr == nil {
		s.After, s.ListErr = c.list(ctx)
	}
	return s
}

func (f clientFlags) printFindings(w io.Writer, found []doctor.Finding) error {
	if f.output == outputJSON {
		return printJSON(w, found)
	}
	t := newTable(w)
	t.row("STATE", "CHECK", "POOL", "SEEN")
	for _, f := range found {
		t.row(string(f.State), string(f.Check), f.Pool, oneLine(f.Seen))
		if f.Do != "" {
			t.below(3, "to do: "+oneLine(f.Do))
		}
	}
	return t.flush()
}
