package cli

import (
	"github.com/spf13/cobra"

	"github.com/delegated-ipam/delegated-ipam/internal/fleet"
	"github.com/delegated-ipam/delegated-ipam/internal/kube"
	"github.com/delegated-ipam/delegated-ipam/internal/options"
)

const (
	// exitFindings is the exit code of a command that has found a fault. A command without a result
	// ends with command.ExitFailed.
	exitFindings = 3
	// exitFree is the exit code of holder if an address has no holder.
	exitFree = 4
)

// program is the name of the program, the first part of the user agent of its requests.
const program = "delegated-ipam-bridge"

type clusterCommand struct {
	*cobra.Command
	options *options.Cluster
}

// newClusterCommand adds the common options, and more, to a command.
func newClusterCommand(cmd *cobra.Command, more ...options.Option) clusterCommand {
	o, flags := options.NewCluster(more...)
	return clusterCommand{withOptions(flags, cmd), o}
}

// connect returns the cluster that the options name.
func (c clusterCommand) connect(version string) (*fleet.Cluster, error) {
	if _, err := newLog(c.ErrOrStderr(), c.options.Log); err != nil {
		return nil, err
	}
	config, err := kube.CommandConfig(c.options.Kubeconfig, program+"/"+version)
	if err != nil {
		return nil, err
	}
	return fleet.New(config)
}
