package unixsock

import (
	"bufio"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/internal/logging"
	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
)

const other = "GET /other HTTP/1.1\r\nHost: x\r\n\r\n"

// oneByte reads one byte at a time, so that no data after a response is read.
type oneByte struct{ io.Reader }

func (r oneByte) Read(p []byte) (int, error) { return r.Reader.Read(p[:1]) }

// readStatus reads a response, no more, and returns its status code.
func readStatus(t *testing.T, conn net.Conn) int {
	t.Helper()
	res, err := http.ReadResponse(bufio.NewReaderSize(oneByte{conn}, 16), nil)
	check.Must(t, err)
	body, err := io.ReadAll(res.Body)
	check.Must(t, err)
	if res.StatusCode == http.StatusServiceUnavailable {
		var reason string
		check.NoError(t, json.Unmarshal(body, &reason))
		check.Equal(t, "type of the reason", res.Header.Get("Content-Type"), "application/json")
	}
	return res.StatusCode
}

func send(t *testing.T, conn net.Conn, text string) {
	t.Helper()
	_, err := io.WriteString(conn, text)
	check.Must(t, err)
}

// A client has left when its connection is closed, and not before. Its context need not have ended by then.
func TestLeft(t *testing.T) {
	path := filepath.Join(shortTempDir(t), "s.sock")
	l, err := listenAt(Options{Path: path})
	check.Must(t, err)
	closed, left := make(chan struct{}), make(chan bool)
	serveOn(t, Server(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		left <- Left(r.Context())
		<-closed
		left <- Left(r.Context())
	}), logging.Discard()), l)
	conn, err := net.Dial("unix", path)
	check.Must(t, err)
	send(t, conn, other)
	check.Equal(t, "left while it waits", <-left, false)
	check.Must(t, conn.Close())
	close(closed)
	check.Equal(t, "left after the end", <-left, true)
	check.Equal(t, "left without a connection", Left(t.Context()), false)
}
