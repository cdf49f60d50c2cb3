package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"

	"github.com/go-openapi/runtime"
)

// maxReason bounds how much of an answer is taken for a reason, in bytes.
const maxReason = 64 << 10

// refusal is an answer that says no.
type refusal struct {
	code int
	// reason is the server's own; empty for a code without a body.
	reason string
	// retryAfter is after how many seconds to ask again; empty if not said.
	retryAfter string
}

// newRefusal reads the reason: a JSON string (the contract's Error), an object
// with a message (what go-openapi answers by itself), or plain text.
func newRefusal(r runtime.ClientResponse) *refusal {
	out := &refusal{code: r.Code(), retryAfter: r.GetHeader("Retry-After")}
	// A reason that is cut off is better than none.
	body, _ := io.ReadAll(io.LimitReader(r.Body(), maxReason))
	var object struct{ Message string }
	if json.Unmarshal(body, &out.reason) == nil {
		return out
	}
	if json.Unmarshal(body, &object) == nil && object.Message != "" {
		out.reason = object.Message
		return out
	}
	out.reason = strings.TrimSpace(string(body))
	return out
}

// Error is the server's reason, or the name of the code.
func (r *refusal) Error() string {
	if r.reason != "" {
		return r.reason
	}
	return fmt.Sprintf("the sidecar answered %d %s without a reason", r.code, http.StatusText(r.code))
}

// meanings say of codes without a body what they mean in one operation.
type meanings map[int]string

// explain makes an error of a request into what a person can act on.
func (c connection) explain(ctx context.Context, err error, means meanings) error {
	var refused *refusal
	var dial *net.OpError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &refused):
		return refused.explain(means)
	case errors.Is(ctx.Err(), context.Canceled):
		return fmt.Errorf("interrupted; what the sidecar had begun goes on, and `delegated-ipam list` shows it")
	case errors.As(err, &dial) && dial.Op == "dial":
		return fmt.Errorf("no sidecar can be reached at %s: %w; check that `delegated-ipam serve` runs on this node, that its --socket-path is this one (-H or %s names it), and that this user may open it",
			c.socket, dial.Err, socketEnv)
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("the sidecar at %s gave no answer within %s; what it had begun goes on, and `delegated-ipam list` shows it", c.socket, c.limit)
	}
	return fmt.Errorf("the sidecar at %s: %w", c.socket, err)
}

func (r *refusal) explain(means meanings) error {
	var err error = r
	if r.reason == "" && means[r.code] != "" {
		err = errors.New(means[r.code])
	}
	if r.retryAfter != "" {
		return fmt.Errorf("%w (try again in %ss)", err, r.retryAfter)
	}
	return err
}
