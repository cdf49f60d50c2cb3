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
	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
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
	check.Must(t, err)
	check.Must(t, raw.Read(func(fd uintptr) bool {
		_, _, err := unix.Recvfrom(int(fd), make([]byte, 1), unix.MSG_PEEK)
		return !errors.Is(err, unix.EAGAIN)
	}))
}

// oneByte reads one byte at a time, so that no data after a response is read.
type oneByte struct{ io.Reader }

func (r oneByte) Read(p []byte) (int, error) { return r.Reader.Read(p[:1]) }

func readResponse(t *testing.T, conn *net.UnixConn) { readStatus(t, conn) }

// readStatus reads a response, no more, and returns its status code.
func readStatus(t *testing.T, conn net.Conn) int {
	t.Helper()
	res, err := http.ReadResponse(bufio.NewReaderSize(oneByte{conn}, 16), nil)
	check.Must(t, err)
	_, err = io.Copy(io.Discard, res.Body)
	check.Must(t, err)
	return res.StatusCode
}

func readPart(t *testing.T, conn *net.UnixConn) {
	t.Helper()
	_, err := io.ReadFull(conn, make([]byte, 30))
	check.Must(t, err)
}

func closeWrite(t *testing.T, conn *net.UnixConn) { check.Must(t, conn.CloseWrite()) }

func send(t *testing.T, conn net.Conn, text string) {
	t.Helper()
	_, err := io.WriteString(conn, text)
	check.Must(t, err)
}

func TestOnUnread(t *testing.T) {
	type steps []func(*testing.T, *net.UnixConn)
	sent := func(text string) func(*testing.T, *net.UnixConn) {
		return func(t *testing.T, conn *net.UnixConn) { send(t, conn, text) }
	}
	for name, c := range map[string]struct {
		client steps
		want   int
	}{
		"nothing read":                  {steps{sent(watched), awaitData}, 1},
		"last response, nothing read":   {steps{sent(last), awaitData}, 1},
		"part read":                     {steps{sent(watched), readPart}, 1},
		"last response, part read":      {steps{sent(last), readPart}, 1},
		"all read":                      {steps{sent(watched), readResponse}, 0},
		"last response, all read":       {steps{sent(last), readResponse}, 0},
		"all read, then CloseWrite":     {steps{sent(watched), readResponse, closeWrite}, 0},
		"second response, nothing read": {steps{sent(watched), readResponse, sent(watched), awaitData}, 1},
		"other response, nothing read":  {steps{sent(watched), readResponse, sent(other), awaitData}, 0},
		"pipelined, nothing read":       {steps{sent(watched + other), readResponse, awaitData}, 0},
		"error, nothing read":           {steps{sent(watched), readResponse, sent("invalid\r\n\r\n"), awaitData}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(shortTempDir(t), "s.sock")
			l, err := listenAt(Options{Path: path})
			check.Must(t, err)
			calls, closed := 0, make(chan struct{})
			s := Server(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, err := io.WriteString(w, strings.Repeat("x", 100))
				check.NoError(t, errors.Join(err, http.NewResponseController(w).Flush()))
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
			check.Must(t, err)
			for _, step := range c.client {
				step(t, conn)
			}
			check.Must(t, conn.Close())
			<-closed
			stop()
			check.Equal(t, "calls", calls, c.want)
		})
	}
	OnUnread(t.Context(), func() { t.Error("f was called for another context") })
}
