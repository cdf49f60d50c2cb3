package client

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
)

// DiscardOptions are the optional parameters of [Client.Discard].
type DiscardOptions struct {
	// Pool is the pool of the attachment; [DefaultPool] if it is empty.
	Pool string
}

// Leftover is an invocation of a discarded attachment. The plugin may keep its addresses.
type Leftover struct {
	// ContainerID and Interface are CNI_CONTAINERID and CNI_IFNAME of the plugin calls.
	ContainerID string `json:"container-id"`
	Interface   string `json:"interface"`
	// Network is the name of the CNI network configuration, Plugin the type of its plugin.
	Network string `json:"network"`
	Plugin  string `json:"plugin"`
	// Command is a shell command that runs the plugin's DEL, with the recorded configuration.
	Command string `json:"command"`
}

// Discard releases the attachment of an owner. If the plugin's DEL fails, the sidecar forgets the
// attachment anyway, and the plugin may keep the returned leftovers forever.
//
// Errors: [ErrForbidden], [ErrNotFound], [ErrFailed] (the attachment is kept), [ErrRetryLater], and
// those of the connection.
func (c *Client) Discard(ctx context.Context, owner string, o DiscardOptions) ([]Leftover, error) {
	var left []Leftover
	r := request{method: http.MethodDelete, path: "/ipam", query: parameters("owner", owner, "pool", o.Pool)}
	err := c.send(ctx, r, func(body io.Reader) error { return json.NewDecoder(body).Decode(&left) })
	return left, err
}
