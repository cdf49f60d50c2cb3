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
)

const (
	watched   = "GET /watched HTTP/1.1\r\nHost: x\r\n\r\n"
	unwatches = "GET /other HTTP/1.1\r\nHost: x\r\n\r\n"
	last      = "GET /watched HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
)

// await returns when something can be read from a connection, and reads nothing.
func await(t *testing.T, conn *net.UnixConn) {
	t.Helper()
	raw, err := conn.SyscallConn()
	must(t, err)
	must(t, raw.Read(func(fd uintptr) bool {
		_, _, err := unix.Recvfrom(int(fd), make([]byte, 1), unix.MSG_PEEK)
		return !errors.Is(err, unix.EAGAIN)
	}))
}

// oneByte reads one byte at a time, so that nothing behind a response is read.
type oneByte struct{ io.Reader }

func (r oneByte) Read(p []byte) (int, error) { return r.Reader.Read(p[:1]) }

func readOne(t *testing.T, conn *net.UnixConn) {
	t.Helper()
	res, err := http.ReadResponse(bufio.NewReaderSize(oneByte{conn}, 16), nil)
	must(t, err)
	_, err = io.Copy(io.Discard, res.Body)
	must(t, err)
}

func TestAResponseThatTheClientDidNotReadIsNoticed(t *testing.T) {
	for name, c := range map[string]struct {
		client func(*testing.T, *net.UnixConn)
		want   int
	}{
		"nothing read":             {func(t *testing.T, conn *net.UnixConn) { send(t, conn, watched); await(t, conn) }, 1},
		"nothing read of the last": {func(t *testing.T, conn *net.UnixConn) { send(t, conn, last); await(t, conn) }, 1},
		"a part read":              {func(t *testing.T, conn *net.UnixConn) { send(t, conn, watched); readPart(t, conn) }, 1},
		"a part read of the last":  {func(t *testing.T, conn *net.UnixConn) { send(t, conn, last); readPart(t, conn) }, 1},
		"all read":                 {func(t *testing.T, conn *net.UnixConn) { send(t, conn, watched); readOne(t, conn) }, 0},
		"all read of the last":     {func(t *testing.T, conn *net.UnixConn) { send(t, conn, last); readOne(t, conn) }, 0},
		"all read, and its writing side shut": {func(t *testing.T, conn *net.UnixConn) {
			send(t, conn, watched)
			readOne(t, conn)
			must(t, conn.CloseWrite())
		}, 0},
		"nothing read of the second": {func(t *testing.T, conn *net.UnixConn) {
			send(t, conn, watched)
			readOne(t, conn)
			send(t, conn, watched)
			await(t, conn)
		}, 1},
		"nothing read of another that followed": {func(t *testing.T, conn *net.UnixConn) {
			send(t, conn, watched)
			readOne(t, conn)
			send(t, conn, unwatches)
			await(t, conn)
		}, 0},
		"nothing read of another that was sent with it": {func(t *testing.T, conn *net.UnixConn) {
			send(t, conn, watched+unwatches)
			readOne(t, conn)
			await(t, conn)
		}, 0},
		"nothing read of the refusal of what followed": {func(t *testing.T, conn *net.UnixConn) {
			send(t, conn, watched)
			readOne(t, conn)
			send(t, conn, "no request\r\n\r\n")
			await(t, conn)
		}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(folder(t), "s.sock")
			l, err := Listen(Options{Path: path})
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
			}), quiet())
			s.ConnState = func(_ net.Conn, state http.ConnState) {
				if state == http.StateClosed {
					close(closed)
				}
			}
			done := make(chan error, 1)
			go func() { done <- s.Serve(l) }()
			conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: path, Net: "unix"})
			must(t, err)
			c.client(t, conn)
			must(t, conn.Close())
			<-closed
			must(t, s.Close())
			<-done
			if calls != c.want {
				t.Errorf("noticed %d times; want %d", calls, c.want)
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

func TestWithoutAConnectionOfOursNothingIsNoticed(t *testing.T) {
	OnUnread(t.Context(), func() { t.Error("it was called") })
}
