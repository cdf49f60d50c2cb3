package unixsock

import (
	"bufio"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"testing"

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
