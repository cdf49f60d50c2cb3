package option

import (
	"net"
	"strings"

	"github.com/delegated-ipam/delegated-ipam/pkg/client"
)

// SocketEnv names the socket as it does for Cilium's own client (pkg/defaults of
// Cilium, SockPathEnv): a path, without "unix://".
const SocketEnv = "CILIUM_SOCK"

const unixScheme = "unix://"

// DefaultHost returns the default of --host in an environment, with its scheme.
func DefaultHost(env map[string]string) string {
	if path := env[SocketEnv]; path != "" {
		return unixScheme + strings.TrimPrefix(path, unixScheme)
	}
	return unixScheme + client.DefaultSocket
}

// Host takes the value of a --host flag: a socket as cilium-dbg takes it, or a bare path.
func Host(target *string) *Value[string] {
	return &Value[string]{
		Target: target, Kind: "unix:///path", Takes: "the path of a unix socket, such as " + unixScheme + client.DefaultSocket,
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

// Socket returns the path that a value of --host names.
func Socket(host string) string { return strings.TrimPrefix(host, unixScheme) }
