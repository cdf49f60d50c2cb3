package client

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Kinds of refusal. Each is compared with errors.Is.
var (
	// ErrInvalid is a request that the daemon does not accept: not a unicast address, or an owner
	// of more than 512 bytes or with control characters (400, 422).
	ErrInvalid = errors.New("invalid request")
	// ErrForbidden is a caller that may not use the socket, or an owner that serve --owners does not
	// admit (403); [Error.Reason] says which.
	ErrForbidden = errors.New("forbidden")
	// ErrNotFound is an address that is not allocated in the pool, or an unknown pool (404).
	ErrNotFound = errors.New("not found")
	// ErrExists is an address that another owner holds in this pool (409).
	ErrExists = errors.New("address belongs to another owner")
	// ErrFamilyDisabled is an address of a family that the daemon does not serve (501).
	ErrFamilyDisabled = errors.New("address family is disabled")
	// ErrFailed is a request that the daemon accepted and could not fulfil; [Error.Reason] is why
	// (500, 502). An exhausted range is one of the reasons. CNI plugins report it in text only, so it
	// has no kind of its own.
	ErrFailed = errors.New("operation failed")
	// ErrRetryLater is a request to repeat after [Error.RetryAfter]: the queue is full, too many requests
	// are in progress, the daemon stops, or the plugin has not responded in time (500, 502, 503). In the
	// last case the work continues, and the repeated request returns its result.
	ErrRetryLater = errors.New("retry later")
	// ErrNotDaemon is a response that no delegated-ipam sends: another program, such as
	// cilium-agent, has the socket.
	ErrNotDaemon = errors.New("not a socket of delegated-ipam")
)

// Error is a refusal by the daemon.
type Error struct {
	// StatusCode is the HTTP status code, 300 or above.
	StatusCode int
	// Reason is the text of the daemon; empty if the response has no body.
	Reason string
	// RequestID identifies the request in the daemon's log. It is empty if the response has none.
	RequestID string
	// RetryAfter is the time to wait before the request is repeated, in whole seconds; 0 if the
	// daemon does not ask for that.
	RetryAfter time.Duration
}

// Error returns the reason, or the status code if there is none.
func (e *Error) Error() string {
	if e.Reason != "" {
		return e.Reason
	}
	return fmt.Sprintf("the daemon answered %d %s without a reason", e.StatusCode, http.StatusText(e.StatusCode))
}

// Is reports whether the refusal is of a kind, one of the Err variables.
func (e *Error) Is(kind error) bool { return kind != nil && kind == e.kind() }

// kind maps the status codes of swagger.yaml; nil for every other code.
func (e *Error) kind() error {
	switch e.StatusCode {
	case http.StatusBadRequest, http.StatusUnprocessableEntity:
		return ErrInvalid
	case http.StatusForbidden:
		return ErrForbidden
	case http.StatusNotFound:
		return ErrNotFound
	case http.StatusConflict:
		return ErrExists
	case http.StatusNotImplemented:
		return ErrFamilyDisabled
	case http.StatusInternalServerError, http.StatusBadGateway, http.StatusServiceUnavailable:
		if e.RetryAfter > 0 {
			return ErrRetryLater
		}
		return ErrFailed
	default:
		return nil
	}
}

// maxReason limits how much of a response is read as its reason, in bytes.
const maxReason = 64 << 10

// newError reads a refusal. The reason is a JSON string (swagger.yaml, Error), or the text of another program.
func newError(response *http.Response) *Error {
	e := &Error{StatusCode: response.StatusCode, RequestID: response.Header.Get("X-Request-Id")}
	if s, err := strconv.Atoi(response.Header.Get("Retry-After")); err == nil && s > 0 {
		e.RetryAfter = time.Duration(s) * time.Second
	}
	// A truncated reason is better than none.
	body, _ := io.ReadAll(io.LimitReader(response.Body, maxReason))
	if json.Unmarshal(body, &e.Reason) != nil {
		e.Reason = strings.TrimSpace(string(body))
	}
	return e
}

// notDaemon returns an ErrNotDaemon that names what is wrong with a response.
func notDaemon(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrNotDaemon}, args...)...)
}
