package harness

import (
	"encoding/json"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"sync"

	"github.com/delegated-ipam/delegated-ipam/test/oracle"
)

// clientHistory is what the clients of a node requested and received, for the oracle.
// It outlives every sidecar of the node. A nil one records nothing.
type clientHistory struct {
	mu      sync.Mutex
	history *oracle.History
}

func newClientHistory() *clientHistory { return &clientHistory{history: oracle.NewHistory()} }

// current returns the history since the last reset.
func (c *clientHistory) current() *oracle.History {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.history
}

func (c *clientHistory) reset() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.history = oracle.NewHistory()
}

// ResetHistory drops the recorded responses: the test deletes state of the sidecar or of its
// plugin, or lets other clients than the node's change it, so that earlier responses are no
// longer promises.
func (n *Node) ResetHistory() { n.history.reset() }

// requestSent records a request whose response may never be recorded.
func (c *clientHistory) requestSent(r ipamRequest) {
	switch {
	case c == nil:
	case r.method == http.MethodDelete && r.ip.IsValid():
		c.current().Releasing(r.ip)
	case r.method == http.MethodPost:
		c.current().Asking(r.owner)
	}
}

// releasedOwner returns the owner of the address that a release names; empty if there is none.
func (c *clientHistory) releasedOwner(r ipamRequest) string {
	if c == nil || r.method != http.MethodDelete {
		return ""
	}
	return c.current().OwnerOf(r.ip)
}

// responseReceived records a response; releasedOwner is that of the request. An address with
// an expiration may expire at any time.
func (c *clientHistory) responseReceived(r ipamRequest, releasedOwner string, got Response) {
	if c == nil || r.pool != "" || r.method == http.MethodPost && r.owner == "" {
		return // another pool may have the same addresses; an empty owner gets a generated name
	}
	h := c.current()
	switch {
	case r.method == http.MethodDelete && got.Status == http.StatusOK && releasedOwner != "":
		h.Released(releasedOwner, r.ip)
	case r.method == http.MethodPost && got.Status == http.StatusOK && r.ip.IsValid():
		h.Got(r.owner, r.ip)
	case r.method == http.MethodPost && got.Status == http.StatusCreated:
		ips := got.Addrs()
		h.Got(r.owner, ips...)
		if r.expires {
			h.Releasing(ips...)
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

// parseRequest parses a request as the sidecar does; the result is empty for one that is
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
