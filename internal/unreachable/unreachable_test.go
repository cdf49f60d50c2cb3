package unreachable

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestExplain(t *testing.T) {
	const socket = "/var/run/delegated-ipam/ipam.sock"
	dial := func(errno syscall.Errno) error {
		return fmt.Errorf("the daemon: %w", &net.OpError{Op: "dial", Net: "unix", Err: os.NewSyscallError("connect", errno)})
	}
	const none, other = "no daemon can be reached at " + socket + ": ", "the daemon at " + socket + ": "
	for name, tt := range map[string]struct {
		err  error
		want string
	}{
		"no socket":   {dial(syscall.ENOENT), none + "no such file or directory; start delegated-ipam on this node, or correct the path"},
		"no listener": {dial(syscall.ECONNREFUSED), none + "connection refused; start delegated-ipam on this node, or correct the path"},
		"no access":   {dial(syscall.EACCES), none + "permission denied; run this as root or in the socket's group"},
		"full":        {dial(syscall.EAGAIN), other + "resource temporarily unavailable; see its log"},
		"reset":       {dial(syscall.ECONNRESET), other + "connection reset by peer; see its log"},
		"closed":      {fmt.Errorf("read: %w", io.EOF), other + "EOF; see its log"},
		"cut":         {io.ErrUnexpectedEOF, other + "unexpected EOF; see its log"},
		"timeout":     {context.DeadlineExceeded, "no answer from the daemon at " + socket + " within 1s; it completes a request in progress: see its log"},
		"deadline":    {fmt.Errorf("read: %w", os.ErrDeadlineExceeded), "no answer from the daemon at " + socket + " within 1s; it completes a request in progress: see its log"},
		"refusal":     {errors.New("no addresses left"), "no addresses left"},
		"other file":  {os.NewSyscallError("open", syscall.ENOENT), "open: no such file or directory"},
	} {
		t.Run(name, func(t *testing.T) {
			got := Explain(socket, time.Second, tt.err)
			if got.Error() != tt.want || len(strings.Fields(got.Error())) > 21 {
				t.Errorf("got %q; want %q, at most 21 words", got, tt.want)
			}
			if errno, ok := errors.AsType[syscall.Errno](tt.err); ok && !errors.Is(got, errno) {
				t.Errorf("%q does not wrap %s", got, errno)
			}
		})
	}
	if err := Explain(socket, time.Second, nil); err != nil {
		t.Errorf("nil became %v", err)
	}
}
