package cli

import (
	"flag"
	"io"

	"github.com/sirupsen/logrus"
	"github.com/spf13/cobra"
	"k8s.io/klog/v2"

	"github.com/delegated-ipam/delegated-ipam/cmd/internal/cmdline"
	"github.com/delegated-ipam/delegated-ipam/internal/logging"
	"github.com/delegated-ipam/delegated-ipam/internal/options"
)

// start serves until a signal ends it, with a log, and handles SIGHUP, which is logged as onHangup, and SIGUSR1.
// invalid is an error of the options, nil for none, which is one of usage.
func start(cmd *cobra.Command, o options.Log, invalid error, onHangup string, serve func(logrus.FieldLogger) error) error {
	hangups, stopHangups := cmdline.Hangups()
	defer stopHangups()
	defer cmdline.DumpGoroutines(cmd.ErrOrStderr())()
	if invalid != nil {
		return cmdline.Usage(invalid)
	}
	log, err := newLog(cmd.ErrOrStderr(), o)
	if err != nil {
		return err
	}
	cmdline.LimitMemory(log)
	defer cmdline.OnEach(hangups, func() { log.Info(onHangup) })()
	return serve(log)
}

// newLog returns the log of a command, which also gets the messages of the Kubernetes client. That uses klog, whose
// settings are global. A wrong option is an error of usage.
func newLog(stderr io.Writer, o options.Log) (*logrus.Logger, error) {
	log, err := logging.New(stderr, o.LogLevel, o.LogFormat == options.LogJSON)
	if err != nil {
		return nil, cmdline.Usage(err)
	}
	flags := flag.NewFlagSet("klog", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	klog.InitFlags(flags)
	for name, value := range map[string]string{"logtostderr": "false", "alsologtostderr": "false", "one_output": "true", "skip_headers": "true", "stderrthreshold": "FATAL"} {
		if err := flags.Set(name, value); err != nil {
			return nil, err
		}
	}
	klog.SetOutput(logging.Writer(log.WithField("from", "client-go")))
	return log, nil
}

func (d dependencies) networkCommand() *cobra.Command {
	o, flags := options.NewNetwork(d.env)
	return withOptions(flags, &cobra.Command{
		Use:   "network",
		Short: "Render the CNI network configuration of this node from its podCIDRs",
		Long: `delegated-ipam-bridge network watches the Node of its own name, renders a template of
a CNI network configuration list with it, and keeps the result in a file that the daemon
reads (--cni-conf-file). So each node allocates from its own range.

The file is replaced atomically, and removed when this Node has no range. It stays when
this command ends, and is checked when it starts. SIGUSR1 writes the stacks of all
goroutines to stderr. docs/install/ranges.md describes the template.

Exit status: 0 ended by a signal; 1 failed, with the reason on stderr; 2 wrong usage.`,
		Example: `  # In a pod, with K8S_NODE_NAME from spec.nodeName
  delegated-ipam-bridge network --metrics-address=:9968`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			const onHangup = "SIGHUP ignored: the template is watched, and every option is a flag; restart the process to change one"
			return start(cmd, o.Log, o.Validate(), onHangup, func(log logrus.FieldLogger) error {
				log.WithFields(logrus.Fields{
					"version": d.version, "node": o.NodeName, "template": o.Template, "output": o.Output, "singleNode": o.SingleNode,
				}).Info("Starting delegated-ipam-bridge network")
				return d.serveNetwork(cmd.Context(), *o, log)
			})
		},
	})
}
