package client

import (
	"context"
	"net/http"
	"net/netip"
)

// ReleaseOptions are the optional parameters of [Client.Release].
type ReleaseOptions struct {
	// Pool is the pool of the address, the only one that is searched; [DefaultPool] if it is empty.
	Pool string
	// SkipReleaseDelay returns the address to the plugin immediately, whatever serve --release-delay
	// is, also if it was released before and is in cooldown.
	SkipReleaseDelay bool
}

// Release releases an address. The plugin gets it back when no family of the owner's attachment is
// allocated any more: immediately, or after serve --release-delay. It is not checked whether the
// address is in use. ip has no zone.
//
// Errors: [ErrInvalid], [ErrForbidden], [ErrNotFound], [ErrFamilyDisabled], [ErrFailed] (the plugin's
// DEL failed; the sidecar repeats it, and a second Release tries immediately), [ErrRetryLater], and
// those of the connection.
func (c *Client) Release(ctx context.Context, ip netip.Addr, o ReleaseOptions) error {
	r := request{method: http.MethodDelete, path: addressPath(ip), query: parameters("pool", o.Pool)}
	if o.SkipReleaseDelay {
		r.header, r.value = "skip-release-delay", "true"
	}
	return c.send(ctx, r, nil)
}
