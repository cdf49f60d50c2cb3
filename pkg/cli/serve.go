package cli

import (
	"fmt"

	"github.com/sirupsen/logrus"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/delegated-ipam/delegated-ipam/pkg/app"
	"github.com/delegated-ipam/delegated-ipam/pkg/option"
)

// serveCommand is `serve`.
func (p program) serveCommand() *cobra.Command {
	var o *serveOptions
	var options *pflag.FlagSet
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Serve Cilium's IPAM API on a unix socket",
		Long: `Serve Cilium's IPAM API on a unix socket, with addresses from the delegated
CNI IPAM plugin of this node.

Each option can be given in three places; the first that has it counts:

  1. the flag                      --owners=router,health
  2. the environment               DELEGATED_IPAM_OWNERS=router,health
  3. a file in --config-dir        a file "owners" that holds router,health

The folder is meant for a mounted ConfigMap. A list is separated by commas; as
a flag it can also be repeated. An empty environment variable counts as not set.

SIGTERM or SIGINT ends gracefully: what has begun is finished, nothing is
released. A second signal ends at once; the journal then says what to finish at
the next start.`,
		Example: `  # What cilium-agent in delegated-plugin mode would have on this node
  delegated-ipam serve --local-router-ipv4=10.15.0.1 --local-router-ipv6=fd00:15::1

  # A second pool on a network of its own, and who may own addresses
  delegated-ipam serve --pool=blue=blue-network --owners=router,health,ingress

  # Options from a mounted ConfigMap
  delegated-ipam serve --config-dir=/etc/delegated-ipam`,
		Args: takes(),
		RunE: func(cmd *cobra.Command, _ []string) error { return p.runServe(cmd, o, options) },
	}
	o, options = p.addServeOptions(cmd.Flags())
	return cmd
}

// addServeOptions adds every option of serve to the flags of a command. Of these
// flags, options are those that the environment and the configuration folder can
// set, too.
func (p program) addServeOptions(flags *pflag.FlagSet) (o *serveOptions, options *pflag.FlagSet) {
	o, options = newServeOptions(option.NodeName(p.env))
	flags.AddFlagSet(options)
	o.ConfigDir = p.env[envName(configDirOption)]
	o.InPod = p.env["KUBERNETES_SERVICE_HOST"] != ""
	flags.Var(option.Text(&o.ConfigDir, "path"), configDirOption,
		"folder with one file for each option, such as a mounted ConfigMap")
	return o, options
}

func (p program) runServe(cmd *cobra.Command, o *serveOptions, options *pflag.FlagSet) error {
	from, err := fill(options, p.env, o.ConfigDir)
	if err != nil {
		return err
	}
	config, err := o.config(p.version)
	if err != nil {
		return &option.UsageError{Err: err}
	}
	config.Options = p.withConfigDir(from.values(options), cmd.Flags().Lookup(configDirOption))
	log := option.NewLog(cmd.ErrOrStderr(), o.LogLevel, o.LogFormat)
	for _, name := range unknownVariables(p.env, cmd.Flags()) {
		log.WithField("variable", name).Warn("this environment variable is no option of delegated-ipam; it has no effect")
	}
	logOptions(log, config.Options)
	if err := p.serve(cmd.Context(), config, log); err != nil {
		return fmt.Errorf("serve: %w", err)
	}
	return nil
}

// logOptions writes each option with its value and where that came from in one
// line, so that a doubt about it ends in the log.
func logOptions(log logrus.FieldLogger, options []app.Option) {
	fields := logrus.Fields{}
	for _, o := range options {
		fields[o.Name] = fmt.Sprintf("%s (%s)", o.Value, o.Source)
	}
	log.WithFields(fields).Debug("options")
}
