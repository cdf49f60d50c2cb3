package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"
)

const (
	// DefaultSocket is the path at which the daemon serves unless --socket-path is given.
	DefaultSocket = "/var/run/delegated-ipam/ipam.sock"
	// DefaultTimeout is the time limit of one request unless [WithTimeout] is given, the same as in
	// Cilium's own client. The daemon responds to each request within 80 s.
	DefaultTimeout = 90 * time.Second
	// DefaultPool is the pool of a request that names none.
	DefaultPool = "default"
)

// base is the base path of the API (swagger.yaml); the host is not used on a unix socket.
const base = "http://localhost/v1"

// Client sends requests to the daemon at one socket. It is safe for concurrent use.
type Client struct {
	socket  string
	timeout time.Duration
	dial    func(ctx context.Context, network, address string) (net.Conn, error)
	http    *http.Client
}

// Option configures a [Client].
type Option func(*Client)

// WithTimeout limits each request, from the connection to the last byte of the response. A request
// that exceeds d fails with context.DeadlineExceeded, and the daemon completes what it has begun.
// 0 sets no limit besides the request's context.
func WithTimeout(d time.Duration) Option { return func(c *Client) { c.timeout = d } }

// WithDialer connects with dial instead of the DialContext of a net.Dialer.
func WithDialer(dial func(ctx context.Context, network, address string) (net.Conn, error)) Option {
	return func(c *Client) { c.dial = dial }
}

// New returns a client of the daemon at a socket: a path, with or without the scheme "unix://"
// (as in $CILIUM_SOCK). It opens no connection. It fails if socket is empty, has another scheme, or
// is the name of an abstract socket ("@name"), which the daemon does not serve.
func New(socket string, options ...Option) (*Client, error) {
	path := strings.TrimPrefix(socket, "unix://")
	if path == "" || strings.Contains(path, "://") {
		return nil, fmt.Errorf("socket is %q; expected the path of a unix socket, such as %s", socket, DefaultSocket)
	}
	if strings.HasPrefix(path, "@") { // net.Dial would connect to an abstract socket
		return nil, fmt.Errorf("socket is %q, an abstract socket; expected the path of a unix socket, such as %s", socket, DefaultSocket)
	}
	c := &Client{socket: path, timeout: DefaultTimeout, dial: (&net.Dialer{}).DialContext}
	for _, o := range options {
		o(c)
	}
	c.http = &http.Client{Transport: &http.Transport{
		DisableCompression: true,
		// A daemon that was restarted has closed the connections that were kept open, and net/http
		// does not repeat a POST on a new one.
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return c.dial(ctx, "unix", path)
		},
	}}
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

// send sends a request and decodes the body of a successful response into model, which may be nil.
// Any other response is an *Error.
func (c *Client) send(ctx context.Context, r request, model any) error {
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
	response, err := c.http.Do(req)
	if err != nil {
		return c.failed(err)
	}
	defer response.Body.Close()
	if response.StatusCode >= http.StatusMultipleChoices {
		return newError(response)
	}
	if model == nil {
		return nil
	}
	d := json.NewDecoder(response.Body)
	d.UseNumber() // the numbers of a profile as the daemon wrote them
	if err := d.Decode(model); err != nil {
		return c.failed(err)
	}
	return nil
}

// failed wraps an error of the connection. The URL in a *url.Error is not the socket, which is
// named instead.
func (c *Client) failed(err error) error {
	if of, ok := errors.AsType[*url.Error](err); ok {
		err = of.Err
	}
	return fmt.Errorf("the daemon at %s: %w", c.socket, err)
}
