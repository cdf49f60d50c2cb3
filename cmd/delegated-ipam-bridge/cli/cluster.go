package cli

import (
	"github.com/spf13/cobra"

	"github.com/delegated-ipam/delegated-ipam/cmd/internal/cmdline"
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
	set     *options.Set
}

// newClusterCommand adds the common options, and more, to a command.
func newClusterCommand(cmd *cobra.Command, more ...options.Option) clusterCommand {
	o, set := options.NewCluster(more...)
	return clusterCommand{withOptions(set, cmd), o, set}
}

// connect resolves the options and returns the cluster that they name.
func (c clusterCommand) connect(env map[string]string, version string) (*fleet.Cluster, error) {
	if err := c.set.Resolve(env); err != nil {
		return nil, cmdline.Usage(err)
	}
	if _, err := newLog(c.ErrOrStderr(), c.options.Log); err != nil {
		return nil, err
	}
	config, err := kube.CommandConfig(c.options.Kubeconfig, program+"/"+version)
	if err != nil {
		return nil, err
	}
	return fleet.New(config)
}
