package cli

import (
	"github.com/sirupsen/logrus"
	"github.com/spf13/cobra"

	"github.com/delegated-ipam/delegated-ipam/internal/options"
)

func (d dependencies) networkCommand() *cobra.Command {
	o, set := options.NewNetwork(d.env)
	return withOptions(set, &cobra.Command{
		Use:   "network",
		Short: "Render the CNI network configuration of this node from its podCIDRs",
		Long: `delegated-ipam-bridge network watches the Node of its own name, renders a template of
a CNI network configuration list with it, and keeps the result in a file that the sidecar
reads (--cni-conf-file). So each node allocates from its own range.

The file is replaced atomically, and removed when this Node has no range. It stays when
this command ends, and is checked when it starts. SIGUSR1 writes the stacks of all
goroutines to stderr. docs/install/ranges.md describes the template.

Exit status: 0 ended by a signal; 1 failed, with the reason on stderr; 2 wrong usage.`,
		Example: `  # In a pod, with K8S_NODE_NAME from spec.nodeName
  delegated-ipam-bridge network --metrics-address=:9968`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return d.start(cmd, service{
				set: set, log: &o.Log, validate: func() error { return o.Validate() },
				onHangup: "SIGHUP ignored: the template is watched, and every option is a flag; restart the process to change one",
				serve: func(log logrus.FieldLogger) error {
					log.WithFields(logrus.Fields{
						"version": d.version, "node": o.NodeName, "template": o.Template, "output": o.Output, "singleNode": o.SingleNode,
					}).Info("Starting delegated-ipam-bridge network")
					return d.serveNetwork(cmd.Context(), *o, log)
				},
			})
		},
	})
}
