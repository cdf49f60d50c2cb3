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

// answers is what the clients of a node were told, for the oracle. It outlives
// every sidecar of the node. A nil one notes nothing.
type answers struct {
	mu      sync.Mutex
	history *oracle.History
}

func newAnswers() *answers { return &answers{history: oracle.NewHistory()} }

// soFar is the history of what was told and still counts.
func (a *answers) soFar() *oracle.History {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.history
}

// forget lets nothing count that was told until now.
func (a *answers) forget() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.history = oracle.NewHistory()
}

// ForgetAnswers says that the test takes away what the sidecar or its plugin keeps,
// or lets others than the node's clients ask: what was answered until now is no
// promise any more that the end of the test is judged by.
func (n *Node) ForgetAnswers() { n.answers.forget() }

// sent notes a request that is on its way, whose answer may never be noted.
func (a *answers) sent(q question) {
	switch {
	case a == nil:
	case q.method == http.MethodDelete && q.ip.IsValid():
		a.soFar().Releasing(q.ip)
	case q.method == http.MethodPost:
		a.soFar().Asking(q.owner)
	}
}

// ownerOf returns who was told to have the address of a release; empty if nobody was.
func (a *answers) ownerOf(q question) string {
	if a == nil || q.method != http.MethodDelete {
		return ""
	}
	return a.soFar().OwnerOf(q.ip)
}

// came notes an answer. The owner is that of an address that was released.
// An address that is to be confirmed may expire at any time.
func (a *answers) came(q question, owner string, got Answer) {
	if a == nil || q.pool != "" || q.method == http.MethodPost && q.owner == "" {
		return // another pool may have the same addresses; who gives no name gets one
	}
	h := a.soFar()
	switch {
	case q.method == http.MethodDelete && got.Status == http.StatusOK && owner != "":
		h.Released(owner, q.ip)
	case q.method == http.MethodPost && got.Status == http.StatusOK && q.ip.IsValid():
		h.Got(q.owner, q.ip)
	case q.method == http.MethodPost && got.Status == http.StatusCreated:
		ips := got.given()
		h.Got(q.owner, ips...)
		if q.expires {
			h.Releasing(ips...)
		}
	}
}

// given are the addresses of an answer to an allocate; none if it cannot be read.
func (a Answer) given() []netip.Addr {
	var said Allocation
	if json.Unmarshal(a.Body, &said) != nil {
		return nil
	}
	var ips []netip.Addr
	for _, text := range said.Addresses() {
		if ip, err := netip.ParseAddr(text); err == nil {
			ips = append(ips, ip)
		}
	}
	return ips
}

// question is what a request asks for, as far as the history needs it.
type question struct {
	method, owner, pool string
	// ip is the address in the path of a restore or a release.
	ip      netip.Addr
	expires bool
}

// questionOf reads a request as the sidecar does. One that it would refuse is none.
func questionOf(method, path string, header []string) question {
	u, err := url.Parse(path)
	if err != nil || !strings.HasPrefix(u.Path, "/v1/ipam") {
		return question{}
	}
	query := u.Query()
	q := question{method: method, owner: query.Get("owner"), pool: query.Get("pool"), expires: len(header) > 0}
	if ip, err := netip.ParseAddr(strings.TrimPrefix(u.Path, "/v1/ipam/")); err == nil {
		q.ip = ip.Unmap()
	}
	return q
}
