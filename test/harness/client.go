package harness

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
	"time"
)

// requestLimit is what Cilium's clients give a request (pkg/api ClientTimeout).
const requestLimit = 90 * time.Second

// Client speaks HTTP on a unix socket. It knows nothing of generated code, so
// that a mistake made there on both sides shows.
type Client struct {
	// Socket is the path of the socket.
	Socket string
}

// Answer is one answer as it came.
type Answer struct {
	Status int
	Header http.Header
	Body   []byte
}

// String shows an answer in a test's failure.
func (a Answer) String() string { return fmt.Sprintf("%d %s", a.Status, a.Body) }

// Do sends a request and fails the test when no answer comes. The path starts
// with /v1; header is name, value, name, value.
func (c Client) Do(t testing.TB, method, path string, header ...string) Answer {
	t.Helper()
	a, err := c.Try(method, path, header...)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	return a
}

// Try is Do that returns the error.
func (c Client) Try(method, path string, header ...string) (Answer, error) {
	ctx, cancel := context.WithTimeout(context.Background(), requestLimit)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, "http://localhost"+path, http.NoBody)
	if err != nil {
		return Answer{}, err
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	return c.Send(req)
}

// Send sends a request on a connection of its own, so that a restart between
// two requests is no error of the client.
func (c Client) Send(req *http.Request) (Answer, error) {
	transport := &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", c.Socket)
		},
	}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return Answer{}, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return Answer{Status: resp.StatusCode, Header: resp.Header, Body: body}, err
}
