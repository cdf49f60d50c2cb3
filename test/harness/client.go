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

// requestLimit is the timeout of Cilium's clients (pkg/api ClientTimeout).
const requestLimit = 90 * time.Second

// Client sends HTTP requests over a unix socket. It does not use the generated code, whose
// client and server could share a mistake.
type Client struct {
	// Socket is the path of the socket.
	Socket string
	// history records requests and responses for the oracle; nil to record nothing.
	history *clientHistory
}

// Response is an HTTP response.
type Response struct {
	Status int
	Header http.Header
	Body   []byte
}

// String formats a response for a failure message.
func (r Response) String() string { return fmt.Sprintf("%d %s", r.Status, r.Body) }

// Do sends a request and fails the test if there is no response. The path starts with /v1;
// header is name, value, name, value. The end of the test is checked against the addresses
// in the response (Sidecar.WaitConsistent).
func (c Client) Do(t testing.TB, method, path string, header ...string) Response {
	t.Helper()
	r := parseRequest(method, path, header)
	owner := c.history.releasedOwner(r)
	a, err := c.Try(method, path, header...)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	c.history.responseReceived(r, owner, a)
	return a
}

// Try is Do that returns the error. It may be called concurrently; its response is not
// recorded.
func (c Client) Try(method, path string, header ...string) (Response, error) {
	ctx, cancel := context.WithTimeout(context.Background(), requestLimit)
	defer cancel()
	c.history.requestSent(parseRequest(method, path, header))
	req, err := http.NewRequestWithContext(ctx, method, "http://localhost"+path, http.NoBody)
	if err != nil {
		return Response{}, err
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	return c.Send(req)
}

// Send sends a request on a new connection, so that a restart between two requests does not
// fail the second one.
func (c Client) Send(req *http.Request) (Response, error) {
	transport := &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", c.Socket)
		},
	}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return Response{}, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return Response{Status: resp.StatusCode, Header: resp.Header, Body: body}, err
}
