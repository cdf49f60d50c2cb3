package cli

import (
	"net/netip"

	"github.com/spf13/cobra"

	"github.com/delegated-ipam/delegated-ipam/internal/fleet"
	"github.com/delegated-ipam/delegated-ipam/internal/fleet/audit"
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

// connect returns the cluster of a kubeconfig file. It sends no request.
func (d dependencies) connect(kubeconfig string) (*fleet.Cluster, error) {
	config, err := kube.CommandConfig(kubeconfig, program+"/"+d.version)
	if err != nil {
		return nil, err
	}
	return fleet.New(config)
}

// connectLogged is connect, and logs to the stderr of a command what the client of the API server logs.
func (d dependencies) connectLogged(cmd *cobra.Command, log options.Log, kubeconfig string) (*fleet.Cluster, error) {
	if _, err := newLog(cmd.ErrOrStderr(), log); err != nil {
		return nil, err
	}
	return d.connect(kubeconfig)
}

// readNodes connects to a cluster and reads its CiliumNodes, of which only the given addresses are kept if there are
// any, and then its Nodes: a Node is created before its CiliumNode, and a bridge pod is on a node before it fills the
// pool, so pods are read after both.
func (d dependencies) readNodes(cmd *cobra.Command, o *options.Cluster, only ...netip.Addr) (from *fleet.Cluster, c *audit.Cluster, err error) {
	c = audit.NewCluster(only...)
	if from, err = d.connectLogged(cmd, o.Log, o.Kubeconfig); err == nil {
		err = from.CiliumNodes(cmd.Context(), c.CiliumNodes)
	}
	if err == nil {
		c.Nodes, err = from.Nodes(cmd.Context())
	}
	return from, c, err
}
