package cli

import (
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/delegated-ipam/delegated-ipam/internal/defaults"
	"github.com/delegated-ipam/delegated-ipam/pkg/client"
)

// codeHelp has a text for each status code that one operation returns without a body.
type codeHelp map[int]string

// explain returns the error of a request with its remedy.
func (c connection) explain(ctx context.Context, err error, help codeHelp) error {
	var refused *client.Error
	var dial *net.OpError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &refused):
		return explainRefusal(refused, help)
	case errors.Is(ctx.Err(), context.Canceled):
		return errors.New("interrupted; the sidecar completes a request in progress, and `delegated-ipam list` shows the result")
	case errors.As(err, &dial) && dial.Op == "dial":
		return fmt.Errorf("no sidecar can be reached at %s: %w; check that `delegated-ipam serve` runs on this node, that its --socket-path is this one (-H or %s names it), and that this user may open it",
			c.socket, dial.Err, defaults.SocketEnv)
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("no answer from the sidecar at %s within %s; it completes a request in progress, and `delegated-ipam list` shows the result", c.socket, c.limit)
	}
	return err
}

func explainRefusal(r *client.Error, help codeHelp) error {
	var err error = r
	if r.Reason == "" && help[r.StatusCode] != "" {
		err = errors.New(help[r.StatusCode])
	}
	if r.RetryAfter > 0 {
		return fmt.Errorf("%w (try again in %s)", err, r.RetryAfter)
	}
	return err
}

// callerRejected is the help for 403 of an operation without an owner.
const callerRejected = "not authorized: --allow-uids and --allow-gids of the sidecar do not include this user"

// ownerRejected returns the help for 403 of an operation with an owner.
func ownerRejected(owner string) string {
	return fmt.Sprintf("not authorized: either --owners of the sidecar does not match owner %q, or --allow-uids and --allow-gids do not include this user", owner)
}

// notAnAddress returns the help for 400 of an operation with an address.
func notAnAddress(ip string) string {
	return fmt.Sprintf("the sidecar does not accept %q as an address", ip)
}

// familyDisabled returns the help for 501 of an operation with an address.
func familyDisabled(ip string) string {
	return fmt.Sprintf("the address family of %s is disabled in the sidecar (serve --enable-ipv4, --enable-ipv6)", ip)
}
