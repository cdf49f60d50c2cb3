// Package unreachable describes, for all programs alike, that a daemon cannot be reached. It imports
// little: the plugin of a container runtime starts for each call.
package unreachable

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"syscall"
	"time"
)

// Explain returns the error of a connection to a socket as one line with its cause and what to do
// next. limit is the time limit of the request. Any other error, and nil, is returned unchanged.
func Explain(socket string, limit time.Duration, err error) error {
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded) {
		return fmt.Errorf("no answer from the daemon at %s within %s; it completes a request in progress: see its log", socket, limit)
	}
	var cause error
	if errno, ok := errors.AsType[syscall.Errno](err); ok && errors.As(err, new(*net.OpError)) {
		cause = errno
	}
	for _, end := range []error{io.EOF, io.ErrUnexpectedEOF} {
		if errors.Is(err, end) {
			cause = end
		}
	}
	switch {
	case cause == nil:
		return err
	case errors.Is(cause, fs.ErrNotExist), errors.Is(cause, syscall.ECONNREFUSED):
		return fmt.Errorf("no daemon can be reached at %s: %w; start delegated-ipam on this node, or correct the path", socket, cause)
	case errors.Is(cause, fs.ErrPermission):
		return fmt.Errorf("no daemon can be reached at %s: %w; run this as root or in the socket's group", socket, cause)
	}
	return fmt.Errorf("the daemon at %s: %w; see its log", socket, cause)
}
