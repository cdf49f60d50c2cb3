package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/defaults"
)

const (
	// DefaultSocket is the path at which the sidecar serves unless --socket-path is given.
	DefaultSocket = defaults.SocketPath
	// DefaultTimeout is the time limit of one request unless [WithTimeout] is given. The sidecar
	// answers each request within 80 s.
	DefaultTimeout = 90 * time.Second
	// DefaultPool is the pool of a request that names none.
	DefaultPool = defaults.Pool
)

const (
	unixScheme = "unix://"
	// base is the base path of the API (swagger.yaml); the host is not used on a unix socket.
	base = "http://localhost/v1"
)

// Client sends requests to the sidecar at one socket. It is safe for concurrent use.
type Client struct {
	socket  string
	timeout time.Duration
	http    *http.Client
}

// Option configures a [Client].
type Option func(*Client)

// WithTimeout limits each request, from the connection to the last byte of the answer. A request
// that exceeds d fails with context.DeadlineExceeded, and the sidecar completes what it has begun.
// 0 is no limit besides the request's context.
func WithTimeout(d time.Duration) Option { return func(c *Client) { c.timeout = d } }

// New returns a client of the sidecar at a socket: a path, with or without the scheme "unix://"
// (as in $CILIUM_SOCK). It opens no connection. It fails if socket is empty, has another scheme, or
// is the name of an abstract socket ("@name"), which the sidecar does not serve.
func New(socket string, options ...Option) (*Client, error) {
	path := strings.TrimPrefix(socket, unixScheme)
	if path == "" || strings.Contains(path, "://") {
		return nil, fmt.Errorf("socket is %q; expected the path of a unix socket, such as %s", socket, DefaultSocket)
	}
	if strings.HasPrefix(path, "@") { // net.Dial would connect to an abstract socket
		return nil, fmt.Errorf("socket is %q, an abstract socket; expected the path of a unix socket, such as %s", socket, DefaultSocket)
	}
	c := &Client{socket: path, timeout: DefaultTimeout}
	c.http = &http.Client{Transport: &http.Transport{
		DisableCompression: true,
		// A sidecar that was restarted has closed the connections that were kept open, and net/http
		// does not repeat a POST on a new one.
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", path)
		},
	}}
	for _, o := range options {
		o(c)
	}
	return c, nil
}

// Socket returns the path of the socket, without a scheme.
func (c *Client) Socket() string { return c.socket }

// request is one operation of the API.
type request struct {
	method string
	// path is escaped and below the base path.
	path  string
	query url.Values
	// header is the name of a header, empty for none; value is its value.
	header, value string
}

// addressPath is the path of the operations on one address. An invalid one is left to the sidecar.
func addressPath(ip netip.Addr) string { return "/ipam/" + url.PathEscape(ip.String()) }

// parameters returns a query of the values that are not empty; the sidecar has a default for each.
func parameters(nameValues ...string) url.Values {
	q := url.Values{}
	for i := 0; i+1 < len(nameValues); i += 2 {
		if nameValues[i+1] != "" {
			q.Set(nameValues[i], nameValues[i+1])
		}
	}
	return q
}

// send sends a request and passes the body of a successful answer to read, which may be nil. Any
// other answer is an *Error.
func (c *Client) send(ctx context.Context, r request, read func(body io.Reader) error) error {
	if c.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.timeout)
		defer cancel()
	}
	target := base + r.path
	if len(r.query) > 0 {
		target += "?" + r.query.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, r.method, target, http.NoBody)
	if err != nil {
		return err
	}
	if r.header != "" {
		req.Header.Set(r.header, r.value)
	}
	req.Header.Set("Accept", "application/json")
	answer, err := c.http.Do(req)
	if err != nil {
		return c.failed(err)
	}
	defer answer.Body.Close()
	if answer.StatusCode >= http.StatusMultipleChoices {
		return newError(answer)
	}
	if read == nil {
		return nil
	}
	if err := read(answer.Body); err != nil {
		return c.failed(err)
	}
	return nil
}

// failed wraps an error of the connection. The URL in a *url.Error is not the socket, which is named
// instead.
func (c *Client) failed(err error) error {
	var of *url.Error
	if errors.As(err, &of) {
		err = of.Err
	}
	return fmt.Errorf("the sidecar at %s: %w", c.socket, err)
}

// readAll reads a JSON value into raw, as it was answered.
func readAll(raw *json.RawMessage) func(io.Reader) error {
	return func(body io.Reader) error { return json.NewDecoder(body).Decode(raw) }
}
