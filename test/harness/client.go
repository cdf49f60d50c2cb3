package harness

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/delegated-ipam/delegated-ipam/test/oracle"
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

// Do sends a request and fails the test without a response. The path starts with /v1;
// header is name, value, name, value. The end of the test is checked against the addresses
// in the response (Daemon.WaitConsistent).
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

// Try is Do that returns the error. It may be called concurrently; its response is not recorded.
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
	return send(req, func() (net.Conn, error) { return net.Dial("unix", c.Socket) })
}

func send(req *http.Request, dial func() (net.Conn, error)) (Response, error) {
	transport := &http.Transport{
		DisableKeepAlives: true,
		DialContext:       func(context.Context, string, string) (net.Conn, error) { return dial() },
	}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return Response{}, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return Response{Status: resp.StatusCode, Header: resp.Header, Body: body}, err
}

// clientHistory is what the clients of a node requested and received since the last reset, for the
// oracle. It outlives every daemon of the node. A nil one records nothing.
type clientHistory struct {
	current atomic.Pointer[oracle.History]
}

func newClientHistory() *clientHistory {
	c := &clientHistory{}
	c.current.Store(oracle.NewHistory())
	return c
}

// ResetHistory drops the recorded responses: the test deletes state of the daemon or of its plugin, or
// lets other clients than the node's change it, so that earlier responses no longer hold.
func (n *Node) ResetHistory() { n.history.current.Store(oracle.NewHistory()) }

// requestSent records a request whose response may never be recorded.
func (c *clientHistory) requestSent(r ipamRequest) {
	switch {
	case c == nil:
	case r.method == http.MethodDelete && r.ip.IsValid():
		c.current.Load().ReleaseRequested(r.ip)
	case r.method == http.MethodPost:
		c.current.Load().Requested(r.owner)
	}
}

// releasedOwner returns the owner of the address that a release names; empty if there is none.
func (c *clientHistory) releasedOwner(r ipamRequest) string {
	if c == nil || r.method != http.MethodDelete {
		return ""
	}
	return c.current.Load().OwnerOf(r.ip)
}

// responseReceived records a response; releasedOwner is the owner in the request. An address with
// an expiration may expire at any time.
func (c *clientHistory) responseReceived(r ipamRequest, releasedOwner string, got Response) {
	if c == nil || r.pool != "" || r.method == http.MethodPost && r.owner == "" {
		return // another pool may have the same addresses; an empty owner gets a generated name
	}
	h := c.current.Load()
	switch {
	case r.method == http.MethodDelete && got.Status == http.StatusOK && releasedOwner != "":
		h.Released(releasedOwner, r.ip)
	case r.method == http.MethodPost && got.Status == http.StatusOK && r.ip.IsValid():
		h.Allocated(r.owner, r.ip)
	case r.method == http.MethodPost && got.Status == http.StatusCreated:
		ips := got.Addrs()
		h.Allocated(r.owner, ips...)
		if r.expires {
			h.ReleaseRequested(ips...)
		}
	}
}

// Addrs returns the addresses in the response to an allocate; none if it cannot be parsed.
func (r Response) Addrs() []netip.Addr {
	var allocation Allocation
	if json.Unmarshal(r.Body, &allocation) != nil {
		return nil
	}
	var ips []netip.Addr
	for _, text := range allocation.Addresses() {
		if ip, err := netip.ParseAddr(text); err == nil {
			ips = append(ips, ip)
		}
	}
	return ips
}

// ipamRequest holds the parameters of a request that matter to the history.
type ipamRequest struct {
	method, owner, pool string
	// ip is the address in the path of a restore or a release.
	ip      netip.Addr
	expires bool
}

// parseRequest parses a request as the daemon does; the result is empty for one that is
// not for /v1/ipam.
func parseRequest(method, path string, header []string) ipamRequest {
	u, err := url.Parse(path)
	if err != nil || !strings.HasPrefix(u.Path, "/v1/ipam") {
		return ipamRequest{}
	}
	query := u.Query()
	r := ipamRequest{method: method, owner: query.Get("owner"), pool: query.Get("pool"), expires: len(header) > 0}
	if ip, err := netip.ParseAddr(strings.TrimPrefix(u.Path, "/v1/ipam/")); err == nil {
		r.ip = ip.Unmap()
	}
	return r
}
