// Package sidecar is how a process of the node reaches the sidecar: its socket,
// a client that keeps every reason, and the flag that names it.
package sidecar

import (
	"context"
	"net"
	"net/http"
	"strings"

	"github.com/go-openapi/runtime"
	httptransport "github.com/go-openapi/runtime/client"
	"github.com/go-openapi/strfmt"

	"github.com/delegated-ipam/delegated-ipam/client"
	"github.com/delegated-ipam/delegated-ipam/pkg/option"
)

// DefaultSocket is where the sidecar serves if nobody says otherwise.
const DefaultSocket = "/var/run/cilium/delegated-ipam.sock"

// SocketEnv names the socket as it does for Cilium's own client (pkg/defaults of
// Cilium, SockPathEnv): a path, without "unix://".
const SocketEnv = "CILIUM_SOCK"

const unixScheme = "unix://"

// DefaultHost is the value of --host that an environment stands for, with its scheme.
func DefaultHost(env map[string]string) string {
	if path := env[SocketEnv]; path != "" {
		return unixScheme + strings.TrimPrefix(path, unixScheme)
	}
	return unixScheme + DefaultSocket
}

// Host is the value of a --host flag: a socket as cilium-dbg takes it, or a bare path.
func Host(target *string) *option.Value[string] {
	return &option.Value[string]{
		Target: target, Kind: "unix:///path", Takes: "the path of a unix socket, such as " + unixScheme + DefaultSocket,
		Parse: func(s string) (string, error) {
			path := Socket(s)
			if path == "" || strings.Contains(path, "://") {
				return "", net.InvalidAddrError(s)
			}
			return unixScheme + path, nil
		},
		Show: func(s string) string { return s },
	}
}

// Socket is the path that a value of --host names.
func Socket(host string) string { return strings.TrimPrefix(host, unixScheme) }

// New makes a client of the sidecar at a socket. Nothing is sent before the
// first request. What the sidecar refuses comes back as a *Refusal.
func New(socket string) *client.DelegatedIpam {
	transport := httptransport.New(client.DefaultHost, client.DefaultBasePath, client.DefaultSchemes)
	transport.Transport = &http.Transport{
		DisableCompression: true,
		// A sidecar that was started again since has closed what was kept open, and
		// not every request may be sent twice.
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", socket)
		},
	}
	return client.New(refusing{transport}, strfmt.Default)
}

// refusing turns every answer but a success into a *Refusal, whether or not the
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
