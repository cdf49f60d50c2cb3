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
	// answers are noted for the oracle; nil for a client that is not judged.
	answers *answers
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
// with /v1; header is name, value, name, value. What it is told about addresses
// the end of the test is judged by (Sidecar.Agree).
func (c Client) Do(t testing.TB, method, path string, header ...string) Answer {
	t.Helper()
	q := questionOf(method, path, header)
	owner := c.answers.ownerOf(q)
	a, err := c.Try(method, path, header...)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	c.answers.came(q, owner, a)
	return a
}

// Try is Do that returns the error. It may be used by many at the same time: its
// answer is not judged by, and nothing is expected of what it asks for.
func (c Client) Try(method, path string, header ...string) (Answer, error) {
	ctx, cancel := context.WithTimeout(context.Background(), requestLimit)
	defer cancel()
	c.answers.sent(questionOf(method, path, header))
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
