package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/delegated-ipam/delegated-ipam/cmd/internal/output"
	"github.com/delegated-ipam/delegated-ipam/internal/options"
	"github.com/delegated-ipam/delegated-ipam/pkg/client"
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

// decode reads a response into its generated model, which is printed as the API has it.
func decode[Model any](raw json.RawMessage) (*Model, error) {
	m := new(Model)
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	if err := d.Decode(m); err != nil {
		return nil, fmt.Errorf("the response of the sidecar: %w", err)
	}
	return m, nil
}

// Output formats of client commands (-o).
const (
	outputTable = options.OutputTable
	outputJSON  = options.OutputJSON
)

// clientFlags are the flags of every command that queries a sidecar.
type clientFlags struct {
	host   string
	output string
}

// register adds these flags and those of the command.
func (f *clientFlags) register(cmd *cobra.Command, env map[string]string, more ...options.Option) {
	options.Register(cmd.Flags(), options.Host(&f.host, env), f.outputOption())
	options.Register(cmd.Flags(), more...)
}

// outputOption declares the output format of a command.
func (f *clientFlags) outputOption() options.Option {
	return options.Output(&f.output)
}

// connect names the sidecar of the flags. Nothing is sent before the first request.
func (d dependencies) connect(f clientFlags) connection {
	return connection{socket: options.Socket(f.host), limit: d.requestLimit}
}

// printOutcome prints v as JSON, or the line.
func (f clientFlags) printOutcome(w io.Writer, v any, line string) error {
	if f.output == outputJSON {
		return output.JSON(w, v)
	}
	_, err := fmt.Fprintln(w, line)
	return err
}
