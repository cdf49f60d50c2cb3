package unixsock

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/delegated-ipam/delegated-ipam/internal/logging"
)

const (
	watched = "GET /watched HTTP/1.1\r\nHost: x\r\n\r\n"
	other   = "GET /other HTTP/1.1\r\nHost: x\r\n\r\n"
	last    = "GET /watched HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
)

// awaitData returns when there is data to read on a connection. It reads nothing.
func awaitData(t *testing.T, conn *net.UnixConn) {
	t.Helper()
	raw, err := conn.SyscallConn()
	must(t, err)
	must(t, raw.Read(func(fd uintptr) bool {
		_, _, err := unix.Recvfrom(int(fd), make([]byte, 1), unix.MSG_PEEK)
		return !errors.Is(err, unix.EAGAIN)
	}))
}

// oneByte reads one byte at a time, so that no data after a response is read.
type oneByte struct{ io.Reader }

func (r oneByte) Read(p []byte) (int, error) { return r.Reader.Read(p[:1]) }

func readResponse(t *testing.T, conn *net.UnixConn) { readStatus(t, conn) }

// readStatus reads a response, no more, and returns its status code.
func readStatus(t *testing.T, conn *net.UnixConn) int {
	t.Helper()
	res, err := http.ReadResponse(bufio.NewReaderSize(oneByte{conn}, 16), nil)
	must(t, err)
	_, err = io.Copy(io.Discard, res.Body)
	must(t, err)
	return res.StatusCode
}

func TestOnUnread(t *testing.T) {
	for name, c := range map[string]struct {
		client func(*testing.T, *net.UnixConn)
		want   int
	}{
		"nothing read":                {func(t *testing.T, conn *net.UnixConn) { send(t, conn, watched); awaitData(t, conn) }, 1},
		"last response, nothing read": {func(t *testing.T, conn *net.UnixConn) { send(t, conn, last); awaitData(t, conn) }, 1},
		"part read":                   {func(t *testing.T, conn *net.UnixConn) { send(t, conn, watched); readPart(t, conn) }, 1},
		"last response, part read":    {func(t *testing.T, conn *net.UnixConn) { send(t, conn, last); readPart(t, conn) }, 1},
		"all read":                    {func(t *testing.T, conn *net.UnixConn) { send(t, conn, watched); readResponse(t, conn) }, 0},
		"last response, all read":     {func(t *testing.T, conn *net.UnixConn) { send(t, conn, last); readResponse(t, conn) }, 0},
		"all read, then CloseWrite": {func(t *testing.T, conn *net.UnixConn) {
			send(t, conn, watched)
			readResponse(t, conn)
			must(t, conn.CloseWrite())
		}, 0},
		"second response, nothing read": {func(t *testing.T, conn *net.UnixConn) {
			send(t, conn, watched)
			readResponse(t, conn)
			send(t, conn, watched)
			awaitData(t, conn)
		}, 1},
		"other response, nothing read": {func(t *testing.T, conn *net.UnixConn) {
			send(t, conn, watched)
			readResponse(t, conn)
			send(t, conn, other)
			awaitData(t, conn)
		}, 0},
		"pipelined other response, nothing read": {func(t *testing.T, conn *net.UnixConn) {
			send(t, conn, watched+other)
			readResponse(t, conn)
			awaitData(t, conn)
		}, 0},
		"error response, nothing read": {func(t *testing.T, conn *net.UnixConn) {
			send(t, conn, watched)
			readResponse(t, conn)
			send(t, conn, "invalid\r\n\r\n")
			awaitData(t, conn)
		}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(shortTempDir(t), "s.sock")
			l, err := listenAt(Options{Path: path})
			must(t, err)
			calls, closed := 0, make(chan struct{})
			s := Server(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, err := io.WriteString(w, strings.Repeat("x", 100))
				if err := errors.Join(err, http.NewResponseController(w).Flush()); err != nil {
					t.Error(err)
				}
				if r.URL.Path == "/watched" {
					OnUnread(r.Context(), func() { calls++ })
				}
			}), logging.Discard())
			s.ConnState = func(_ net.Conn, state http.ConnState) {
				if state == http.StateClosed {
					close(closed)
				}
			}
			stop := serveOn(t, s, l)
			conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: path, Net: "unix"})
			must(t, err)
			c.client(t, conn)
			must(t, conn.Close())
			<-closed
			stop()
			if calls != c.want {
				t.Errorf("%d calls; want %d", calls, c.want)
			}
		})
	}
}

func send(t *testing.T, conn *net.UnixConn, text string) {
	t.Helper()
	_, err := io.WriteString(conn, text)
	must(t, err)
}

func readPart(t *testing.T, conn *net.UnixConn) {
	t.Helper()
	_, err := io.ReadFull(conn, make([]byte, 30))
	must(t, err)
}

func TestOnUnreadOtherContext(t *testing.T) {
	OnUnread(t.Context(), func() { t.Error("f was called") })
}
