package cli

import (
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/delegated-ipam/delegated-ipam/pkg/client"
	"github.com/delegated-ipam/delegated-ipam/pkg/option"
)

// meanings say of codes without a body what they mean in one operation.
type meanings map[int]string

// explain makes an error of a request into what a person can act on.
func (c connection) explain(ctx context.Context, err error, means meanings) error {
	var refused *client.Error
	var dial *net.OpError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &refused):
		return explainRefusal(refused, means)
	case errors.Is(ctx.Err(), context.Canceled):
		return fmt.Errorf("interrupted; what the sidecar had begun goes on, and `delegated-ipam list` shows it")
	case errors.As(err, &dial) && dial.Op == "dial":
		return fmt.Errorf("no sidecar can be reached at %s: %w; check that `delegated-ipam serve` runs on this node, that its --socket-path is this one (-H or %s names it), and that this user may open it",
			c.socket, dial.Err, option.SocketEnv)
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("the sidecar at %s gave no answer within %s; what it had begun goes on, and `delegated-ipam list` shows it", c.socket, c.limit)
	}
	return err
}

func explainRefusal(r *client.Error, means meanings) error {
	var err error = r
	if r.Reason == "" && means[r.StatusCode] != "" {
		err = errors.New(means[r.StatusCode])
	}
	if r.RetryAfter > 0 {
		return fmt.Errorf("%w (try again in %s)", err, r.RetryAfter)
	}
	return err
}
