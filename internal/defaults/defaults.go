// Package defaults has the constants that the sidecar, its clients and its options share.
package defaults

const (
	// Pool is the pool of a request that names none.
	Pool = "default"
	// SocketPath is the unix socket on which the sidecar serves.
	SocketPath = "/var/run/cilium/delegated-ipam.sock"
	// SocketEnv is the environment variable that names the socket to clients: a path, as for
	// Cilium's own client (internal/defaults of Cilium, SockPathEnv).
	SocketEnv = "CILIUM_SOCK"
)
