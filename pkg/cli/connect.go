package cli

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/delegated-ipam/delegated-ipam/client"
	"github.com/delegated-ipam/delegated-ipam/pkg/option"
	"github.com/delegated-ipam/delegated-ipam/pkg/sidecar"
)

// connection is a client of one sidecar.
type connection struct {
	*client.DelegatedIpam
	socket string
	limit  time.Duration
}

// clientFlags are the flags of every command that asks a sidecar.
type clientFlags struct {
	host   string
	output string
}

// register adds the flags, with the socket that the environment names as default.
func (f *clientFlags) register(cmd *cobra.Command, env map[string]string) {
	addHost(cmd, &f.host, env)
	f.output = outputTable
	cmd.Flags().VarP(option.Choice(&f.output, outputTable, outputJSON), "output", "o", "how the outcome is printed")
}

// addHost adds the flag that names the socket.
func addHost(cmd *cobra.Command, host *string, env map[string]string) {
	*host = sidecar.DefaultHost(env)
	cmd.Flags().VarP(sidecar.Host(host), "host", "H", "socket of the sidecar; by default $"+sidecar.SocketEnv+" as for cilium-dbg, else that of serve")
}

// connect makes a client. Nothing is sent before the first request.
func (p program) connect(f clientFlags) connection {
	socket := sidecar.Socket(f.host)
	return connection{DelegatedIpam: sidecar.New(socket), socket: socket, limit: p.requestLimit}
}
