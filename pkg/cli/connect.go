package cli

import (
	"context"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/go-openapi/runtime"
	httptransport "github.com/go-openapi/runtime/client"
	"github.com/go-openapi/strfmt"
	"github.com/spf13/cobra"

	"github.com/delegated-ipam/delegated-ipam/client"
)

// socketEnv names the socket as it does for Cilium's own client (pkg/defaults of
// Cilium, SockPathEnv): a path, without "unix://".
const socketEnv = "CILIUM_SOCK"

const unixScheme = "unix://"

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
	f.host = unixScheme + defaultSocket
	if path := env[socketEnv]; path != "" {
		f.host = unixScheme + strings.TrimPrefix(path, unixScheme)
	}
	f.output = outputTable
	cmd.Flags().VarP(hostValue(&f.host), "host", "H", "socket of the sidecar; by default $"+socketEnv+" as for cilium-dbg, else that of serve")
	cmd.Flags().VarP(choiceValue(&f.output, outputTable, outputJSON), "output", "o", "how the outcome is printed")
}

// hostValue reads a socket as cilium-dbg takes it, and a bare path.
func hostValue(target *string) *value[string] {
	return &value[string]{
		target: target, kind: "unix:///path", takes: "the path of a unix socket, such as " + unixScheme + defaultSocket,
		parse: func(s string) (string, error) {
			path := strings.TrimPrefix(s, unixScheme)
			if path == "" || strings.Contains(path, "://") {
				return "", net.InvalidAddrError(s)
			}
			return unixScheme + path, nil
		},
		show: func(s string) string { return s },
	}
}

// connect makes a client. Nothing is sent before the first request.
func (p program) connect(f clientFlags) connection {
	socket := strings.TrimPrefix(f.host, unixScheme)
	transport := httptransport.New(client.DefaultHost, client.DefaultBasePath, client.DefaultSchemes)
	transport.Transport = &http.Transport{
		DisableCompression: true,
		// One command, one or two requests: nothing is worth keeping open.
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", socket)
		},
	}
	return connection{
		DelegatedIpam: client.New(refusing{transport}, strfmt.Default),
		socket:        socket,
		limit:         p.requestLimit,
	}
}

// refusing turns every answer but a success into a *refusal, whether or not the
// contract documents it.
type refusing struct{ runtime.ContextualTransport }

// SubmitContext sends a request and reads its answer.
func (t refusing) SubmitContext(ctx context.Context, op *runtime.ClientOperation) (any, error) {
	success := op.Reader
	op.Reader = runtime.ClientResponseReaderFunc(func(r runtime.ClientResponse, c runtime.Consumer) (any, error) {
		if r.Code() >= http.StatusMultipleChoices {
			return nil, newRefusal(r)
		}
		return success.ReadResponse(r, c)
	})
	return t.ContextualTransport.SubmitContext(ctx, op)
}
