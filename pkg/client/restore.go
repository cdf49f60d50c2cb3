package client

import (
	"context"
	"net/http"
	"net/netip"
)

// RestoreOptions are the optional parameters of [Client.Restore].
type RestoreOptions struct {
	// Pool is the pool of the address; [DefaultPool] if it is empty.
	Pool string
	// Also is the address of the other family that the owner had, if there is one. If the owner
	// holds nothing, the plugin is asked for both at once, so that a later Restore of Also succeeds
	// as far as the plugin can be asked for two addresses. Restore does not fail without it.
	Also netip.Addr
}

// Restore allocates exactly this address to an owner, or fails. It succeeds if the owner holds the
// address already, and confirms it if it is temporary. ip has no zone; owner is as in
// [Client.Allocate].
//
// Errors: [ErrInvalid], [ErrForbidden], [ErrExists], [ErrFamilyDisabled], [ErrFailed] (the owner
// holds another address, the plugin does not give this one, the pool is unknown, …),
// [ErrRetryLater], and those of the connection.
func (c *Client) Restore(ctx context.Context, ip netip.Addr, owner string, o RestoreOptions) error {
	r := request{method: http.MethodPost, path: addressPath(ip), query: parameters("owner", owner, "pool", o.Pool)}
	if o.Also.IsValid() {
		r.header, r.value = "delegated-ipam-also", o.Also.String()
	}
	return c.send(ctx, r, nil)
}
