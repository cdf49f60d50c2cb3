package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/delegated-ipam/delegated-ipam/pkg/client"
	"github.com/delegated-ipam/delegated-ipam/pkg/option"
)

// connection names one sidecar and the time limit of a request to it.
type connection struct {
	socket string
	limit  time.Duration
}

// client returns a client, which has sent nothing.
func (c connection) client() (*client.Client, error) {
	return client.New(c.socket, client.WithTimeout(c.limit))
}

// decode reads an answer into its generated model, which is printed as the API has it.
func decode[Model any](raw json.RawMessage) (*Model, error) {
	m := new(Model)
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	if err := d.Decode(m); err != nil {
		return nil, fmt.Errorf("the sidecar's answer: %w", err)
	}
	return m, nil
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
	*host = option.DefaultHost(env)
	cmd.Flags().VarP(option.Host(host), "host", "H", "socket of the sidecar; by default $"+option.SocketEnv+" as for cilium-dbg, else that of serve")
}

// connect names the sidecar of the flags. Nothing is sent before the first request.
func (p program) connect(f clientFlags) connection {
	return connection{socket: option.Socket(f.host), limit: p.requestLimit}
}
