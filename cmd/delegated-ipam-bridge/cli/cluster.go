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
