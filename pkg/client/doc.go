// Package client is a Go client of a running delegated-ipam: it allocates, restores, releases and
// lists addresses over the unix socket that the daemon serves.
//
//	c, err := client.New(client.DefaultSocket)
//	...
//	got, err := c.Allocate(ctx, "router", client.AllocateOptions{})
//	if errors.Is(err, client.ErrRetryLater) {
//		...
//	}
//
// A refusal by the daemon is an *[Error]: find it with errors.As, or compare with errors.Is and
// one of the Err variables. Every other error is of the connection or of the context. The client
// does not retry. Every operation is safe to repeat: an owner that allocates again gets the
// addresses that it holds, and a second release of one address is [ErrNotFound].
//
// The process needs the right to open the socket, and the daemon must admit its user or group
// (serve --allow-uids, --allow-gids).
//
// # Stability
//
// This package is public, as are the generated packages client and api/models, whose types it
// returns. Within one major version of the module no exported name of this package is removed or
// changes its meaning; struct fields, Err variables and constants may be added. A client works with
// every daemon of the same API version (base path /v1).
package client
