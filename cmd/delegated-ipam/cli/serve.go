package cli

import (
	"fmt"

	"github.com/sirupsen/logrus"
	"github.com/spf13/cobra"

	"github.com/delegated-ipam/delegated-ipam/cmd/internal/cmdline"
	"github.com/delegated-ipam/delegated-ipam/internal/logging"
	"github.com/delegated-ipam/delegated-ipam/internal/options"
	"github.com/delegated-ipam/delegated-ipam/internal/sidecar"
)

func (d dependencies) serveCommand() *cobra.Command {
	o, set := options.NewSidecar(d.env)
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Serve Cilium's IPAM API on a unix socket",
		Long: `Serve Cilium's IPAM API on a unix socket, with addresses from the delegated CNI IPAM
plugin of this node.

Each option has three sources; the first that sets it applies:

  1. the flag                      --owners=router,health
  2. the environment               DELEGATED_IPAM_OWNERS=router,health
  3. a file in --config-dir        a file "owners" that contains router,health

The directory is meant for a mounted ConfigMap. Lists are separated by commas; as a flag
they can also be repeated. An empty environment variable counts as not set.

SIGTERM or SIGINT ends gracefully: requests in progress are completed, and nothing is
released. A second signal ends the process immediately; the next start completes what the
journal records.

SIGHUP reads the CNI configuration, the plugin profiles and --config-dir again; an option
that needs a restart is logged. SIGUSR1 writes the stacks of all goroutines to stderr.`,
		Example: `  # The addresses that cilium-agent in delegated-plugin mode would have on this node
  delegated-ipam serve --local-router-ipv4=10.15.0.1 --local-router-ipv6=fd00:15::1

  # A second pool on a separate network, and a list of owners
  delegated-ipam serve --pool=blue=blue-network --owners=router,health,ingress

  # Options from a mounted ConfigMap
  delegated-ipam serve --config-dir=/etc/delegated-ipam`,
		Args: args(),
		RunE: func(cmd *cobra.Command, _ []string) error { return d.runServe(cmd, o, set) },
	}
	cmd.Flags().AddFlagSet(set.Flags())
	return cmd
}

func (d dependencies) runServe(cmd *cobra.Command, o *options.Sidecar, set *options.Set) error {
	hangups, stopHangups := cmdline.Hangups()
	defer stopHangups()
	defer cmdline.DumpGoroutines(cmd.ErrOrStderr())()
	if err := set.Resolve(d.env); err != nil {
		return cmdline.Usage(err)
	}
	resolved, err := o.Complete()
	if err != nil {
		return cmdline.Usage(err)
	}
	config := sidecar.Config{Sidecar: resolved, Version: d.version, Settings: set.Settings()}
	if err := config.Validate(); err != nil {
		return cmdline.Usage(err)
	}
	log, err := logging.New(cmd.ErrOrStderr(), o.LogLevel, o.LogFormat == options.LogJSON)
	if err != nil {
		return cmdline.Usage(err)
	}
	for _, name := range set.UnknownVariables(d.env) {
		log.WithField("variable", name).Warn("Ignored an environment variable that is not an option of delegated-ipam")
	}
	logSkipped(log, set)
	logSettings(log, config.Settings)
	config.Hangups = hangups
	config.Reread = (&reloader{env: d.env, set: set, log: log, running: set.Settings()}).reread
	if err := d.serve(cmd.Context(), config, log); err != nil {
		return fmt.Errorf("serve: %w", err)
	}
	return nil
}

// logSkipped warns of each file of --config-dir that has no effect.
func logSkipped(log logrus.FieldLogger, set *options.Set) {
	for _, path := range set.SkippedFiles() {
		log.WithField("file", path).Warn("Ignored a directory or backup file in --config-dir")
	}
}

// logSettings logs each option with its value and source in one line.
func logSettings(log logrus.FieldLogger, settings []options.Setting) {
	fields := logrus.Fields{}
	for _, s := range settings {
		fields[s.Name] = fmt.Sprintf("%s (%s)", s.Value, s.Source)
	}
	log.WithFields(fields).Debug("Options")
}
