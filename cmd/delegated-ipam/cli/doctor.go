package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/delegated-ipam/delegated-ipam/api/models"
	"github.com/delegated-ipam/delegated-ipam/cmd/internal/cmdline"
	"github.com/delegated-ipam/delegated-ipam/cmd/internal/output"
	"github.com/delegated-ipam/delegated-ipam/internal/daemon"
	"github.com/delegated-ipam/delegated-ipam/internal/daemon/doctor"
	"github.com/delegated-ipam/delegated-ipam/internal/options"
)

// exitWarning is the exit code of `doctor` if there are warnings and no error.
const exitWarning = 3

// doctorOptions are the flags of `doctor`.
type doctorOptions struct {
	clientFlags
	repair bool
	// report is the file of the leaks; empty for none.
	report string
	serve  serveOptions
}

func (d dependencies) doctorCommand() *cobra.Command {
	o := &doctorOptions{}
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Diagnose configuration, plugin and node",
		Long: `Check the daemon, its directories and socket, the CNI configuration, the plugin and
the files of the plugin, and report for each what was found and how to fix it. Nothing
is changed without --repair. Without a running daemon, doctor makes the checks of its
readiness: VERSION, STATUS and, of host-local, a CHECK that reads no lease.

While the daemon runs, its own options apply, otherwise those that serve would have:
doctor accepts every flag of serve (see "serve --help"), its environment variables and
--config-dir. Run it where the daemon runs, with its mounts and as its user.
docs/operate/doctor.md lists the checks.

A leak is a lease of the daemon that none of its attachments has. --report writes the leaks
to a new file (- for standard output, without the findings). After a review, --repair with
the same file (- for standard input) releases those that are still leaks and in the file.

STATE is ok, warning (a waste, or a future risk) or error. The exit status is 0 if every
state is ok, 1 if there is an error, and 3 if there are only warnings.`,
		Example: `  # In the daemon's container
  delegated-ipam doctor

  # Before the first start, with the options of serve
  delegated-ipam doctor --config-dir=/etc/delegated-ipam --cni-bin-dir=/usr/lib/cni

  # Remove the files that a killed host-local left without a container ID
  delegated-ipam doctor --repair

  # Release leaks, reviewed by a second person
  delegated-ipam doctor --report=leaks.json
  delegated-ipam doctor --repair --report=leaks.json

  # The addresses that such files block
  delegated-ipam doctor -o json | jq -r '.[] | select(.check == "stale-lease-files" and .state != "ok") | .address'`,
		Args: args(),
		RunE: func(cmd *cobra.Command, _ []string) error { return d.doctor(cmd, *o) },
	}
	o.serve = d.serveOptions(cmd)
	// Visible, they would hide the few flags of doctor itself.
	cmd.Flags().VisitAll(func(f *pflag.Flag) { f.Hidden = true })
	o.register(cmd, d.env, options.Option{Name: "repair", Value: options.Bool(&o.repair), Help: "remove files without a container ID, under the lock of host-local, and release the leaks of --report"},
		options.Option{Name: "report", Value: options.Path(&o.report), Help: "file of leaks to write or, with --repair, to release (- = standard output or input)"})
	return cmd
}

func (d dependencies) doctor(cmd *cobra.Command, o doctorOptions) error {
	own := resolveForDoctor(o.serve)
	o.useSocket(cmd, own)
	observed := d.observe(cmd.Context(), own, o.host, o.repair && o.report == "")
	findings := doctor.Diagnose(observed)
	if o.report != "" {
		switch done, err := d.useReport(cmd, o, observed, leaks(findings)); {
		case err != nil || done:
			return err
		case o.repair:
			findings = doctor.Diagnose(d.observe(cmd.Context(), own, o.host, true))
		}
	}
	if err := output.Print(cmd.OutOrStdout(), o.output, findings, func(t output.Table) { printFindings(t, findings) }); err != nil {
		return err
	}
	worst := doctor.Worst(findings)
	err := fmt.Errorf("doctor: the worst of %d findings is: %s", len(findings), worst)
	switch worst {
	case doctor.OK:
		return nil
	case doctor.Warning:
		return &cmdline.ExitError{Code: exitWarning, Err: err}
	}
	return err
}

// useSocket makes the socket of the options of serve that of the requests, unless another one is named.
func (f *clientFlags) useSocket(cmd *cobra.Command, own doctorConfig) {
	if !cmd.Flags().Changed("host") && own.socket != "" {
		f.host = own.socket
	}
}

// useReport writes the report or, to repair, releases the leaks that are in it. It reports whether that was all to do.
func (d dependencies) useReport(cmd *cobra.Command, o doctorOptions, observed *doctor.Observations, found []doctor.Finding) (done bool, err error) {
	if err := cmp.Or(observed.StatusErr, observed.ListErr); err != nil {
		return false, fmt.Errorf("doctor: --report needs a running daemon: %w", err)
	}
	node := observed.Status.NodeName
	if !o.repair {
		return o.report == standardStream, d.writeReport(cmd, o.report, node, found)
	}
	r, err := readReport(cmd, o.report, node)
	if err != nil {
		return false, err
	}
	c, err := d.connect(o.host)
	if err != nil {
		return false, err
	}
	return false, c.releaseLeaks(cmd.Context(), cmd.ErrOrStderr(), r.Leases, found)
}

// observe queries the daemon, and collects everything else between its two lists.
func (d dependencies) observe(ctx context.Context, own doctorConfig, host string, repair bool) *doctor.Observations {
	o := &doctor.Observations{}
	var status *models.StatusResponse
	c, err := d.connect(host)
	if err == nil {
		status, err = c.health(ctx)
	}
	if o.StatusErr = err; err == nil {
		o.Status = status.DelegatedIpam
		o.Before, o.ListErr = c.list(ctx)
	}
	config, compared := own.compare(o.Status)
	o.Options = compared
	ctxCollect, cancel := context.WithTimeout(ctx, d.requestLimit) // limits the wait for a lock of the plugin
	defer cancel()
	if config != nil {
		o.Collect(ctxCollect, *config, options.Socket(host), repair)
	}
	if err == nil && o.ListErr == nil {
		o.After, o.ListErr = c.list(ctx)
	}
	return o
}

// printFindings prints one row for the findings that differ in address or owner alone.
func printFindings(t output.Table, findings []doctor.Finding) {
	t.Row("STATE", "CHECK", "POOL", "MESSAGE")
	for len(findings) > 0 {
		first := findings[0]
		var others []string
		findings = slices.DeleteFunc(slices.Clone(findings[1:]), func(f doctor.Finding) bool {
			equal := first.Remedy != "" && f.Address+f.Owner != "" && f.State == first.State && f.Check == first.Check && f.Pool == first.Pool && f.Remedy == first.Remedy
			if equal {
				others = append(others, cmp.Or(f.Address, f.Owner))
			}
			return equal
		})
		t.Row(string(first.State), first.Check, first.Pool, first.Message)
		var below []string
		if len(others) > 0 {
			slices.SortFunc(others, output.Natural)
			below = output.Wrap(fmt.Sprintf("and %d others (-o json has each): %s", len(others), strings.Join(others, ", ")), output.Width)
		}
		if first.Remedy != "" {
			below = append(below, output.Wrap("remedy: "+first.Remedy, output.Width)...)
		}
		for _, line := range below {
			t.Below(3, line)
		}
	}
}

// serviceLink matches the variables that Kubernetes sets in each pod for a Service whose name
// begins with delegated-ipam (Kubernetes, pkg/kubelet/envvars). They are ignored.
var serviceLink = regexp.MustCompile(`_SERVICE_(HOST|PORT(_[A-Z0-9_]+)?)$|_PORT(_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?$`)

// doctorConfig are the options of serve here, with what doctor has found in their sources.
type doctorConfig struct {
	serveOptions
	// socket is the socket of the daemon by these options; empty to leave it to $CILIUM_SOCK.
	socket string
	// config is nil if the options cannot be used.
	config *daemon.Config
	doctor.Options
}

// resolveForDoctor reads the environment and --config-dir. Errors become findings, and doctor
// continues.
func resolveForDoctor(o serveOptions) doctorConfig {
	r := doctorConfig{serveOptions: o, Options: doctor.Options{Unknown: slices.DeleteFunc(o.set.UnknownVariables(o.env), serviceLink.MatchString)}}
	config, err := o.resolve()
	r.Skipped = o.set.SkippedFiles()
	if err != nil {
		r.Invalid = err
		return r
	}
	r.config, r.Invalid = &config, errors.Join(config.Daemon.Validate(), config.SocketOptions().Validate())
	if o.env[options.SocketEnv] == "" || o.set.Setting("socket-path").Source == options.FromFlag {
		r.socket = config.SocketPath
	}
	return r
}

// compare returns the configuration to inspect, nil if there is none: the daemon's if its
// status has it. Options that doctor has otherwise become findings.
func (r doctorConfig) compare(status *models.DelegatedIPAMStatus) (*daemon.Config, doctor.Options) {
	if status == nil || len(status.Options) == 0 {
		return r.config, r.Options
	}
	theirs, set := options.NewDaemon(r.env)
	for _, o := range status.Options {
		known, err := set.Set(o.Name, o.Value)
		if !known {
			continue // an option of another version
		}
		if err != nil {
			r.Invalid = errors.Join(r.Invalid, fmt.Errorf("the daemon's own option --%s cannot be read by this version: %w", o.Name, err))
			return r.config, r.Options
		}
		if own := r.set.Setting(o.Name); differs(own, set.Setting(o.Name), options.Source(o.Source)) {
			r.Differing = append(r.Differing, fmt.Sprintf("--%s is %q here (%s), and the daemon runs with %q (%s)", o.Name, own.Value, own.Source, o.Value, o.Source))
		}
	}
	resolved, err := theirs.Complete()
	if err != nil {
		r.Invalid = errors.Join(r.Invalid, err)
		return r.config, r.Options
	}
	r.FromDaemon = true
	return &daemon.Config{Daemon: resolved}, r.Options
}

// differs reports whether doctor has another value than the daemon, from a source that would take
// precedence for the daemon, too. An option that a flag of the daemon overrides is not a
// difference, nor is a default.
func differs(own, theirs options.Setting, from options.Source) bool {
	return own.Source != "" && own.Source != options.FromDefault && own.Source.Before(from) && own.Value != theirs.Value
}
