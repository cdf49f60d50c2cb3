package e2e

import (
	"net/http"
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

// badRequest is a request that must be refused without a trace.
type badRequest struct {
	method, path string
	status       int
	// says must be in the answer's body.
	says []string
}

func TestBadRequest(t *testing.T) {
	t.Parallel()
	n := nodeWith(t, harness.DualStack())
	s := n.Start(t)
	held := s.Allocate(t, harness.Request{Owner: "router"})
	long := strings.Repeat("o", 513)
	longInBytes := strings.Repeat("%C3%A4", 257) // 257 characters, 514 bytes

	tests := map[string]badRequest{
		"an unknown family":                             {"POST", "/v1/ipam?owner=a&family=ipx", 422, []string{"family in query should be one of [ipv4 ipv6]"}},
		"a malformed address to restore":                {"POST", "/v1/ipam/banana?owner=a", 400, nil},
		"an address with a prefix length to restore":    {"POST", "/v1/ipam/10.15.0.9%2F24?owner=a", 400, nil},
		"a malformed address to release":                {"DELETE", "/v1/ipam/10.15.0.256", 400, nil},
		"an unknown pool to allocate from":              {"POST", "/v1/ipam?owner=a&pool=red", 502, []string{"red", "default"}},
		"an unknown pool to restore in":                 {"POST", "/v1/ipam/10.15.0.9?owner=a&pool=red", 500, []string{"red", "default"}},
		"an unknown pool to release in":                 {"DELETE", "/v1/ipam/10.15.0.9?pool=red", 404, nil},
		"an owner over 512 bytes":                       {"POST", "/v1/ipam?owner=" + long, 422, []string{"owner", "512"}},
		"an owner over 512 bytes in fewer characters":   {"POST", "/v1/ipam?owner=" + longInBytes, 422, []string{"owner", "512"}},
		"an owner with a control character":             {"POST", "/v1/ipam?owner=a%0Ab", 422, []string{"owner"}},
		"an owner over 512 bytes to restore for":        {"POST", "/v1/ipam/10.15.0.9?owner=" + long, 422, []string{"owner", "512"}},
		"an owner with a control character to restore":  {"POST", "/v1/ipam/10.15.0.9?owner=a%7Fb", 422, []string{"owner"}},
		"an address that nobody holds":                  {"DELETE", "/v1/ipam/10.15.0.200", 404, nil},
		"another owner's address":                       {"POST", "/v1/ipam/" + held.Address.IPv4 + "?owner=thief", 409, nil},
		"another owner's IPv6 address":                  {"POST", "/v1/ipam/" + held.Address.IPv6 + "?owner=thief", 409, nil},
		"a second address of a family that it holds":    {"POST", "/v1/ipam/10.15.0.77?owner=router", 500, []string{"router", held.Address.IPv4, "10.15.0.77"}},
		"a path that does not exist":                    {"POST", "/v1/ipams", 404, nil},
		"a method that the path does not have":          {"PUT", "/v1/ipam", 405, nil},
		"a method that the path with address lacks too": {"GET", "/v1/ipam/10.15.0.2", 405, nil},
	}
	wantRefusals(t, n, s, tests)
}

func TestFamilyDisabled(t *testing.T) {
	t.Parallel()
	n := nodeWith(t, harness.DualStack())
	s := n.Start(t, "--enable-ipv6=false")
	wantRefusals(t, n, s, map[string]badRequest{
		"to allocate": {"POST", "/v1/ipam?owner=a&family=ipv6", 502, []string{"ipv6"}},
		"to restore":  {"POST", "/v1/ipam/fd00:15::9?owner=a", 501, nil},
		"to release":  {"DELETE", "/v1/ipam/fd00:15::9", 501, nil},
	})
}

func TestFamilyNotInNetwork(t *testing.T) {
	t.Parallel()
	n := harness.NewNode(t)
	n.WriteNetwork(t, "05-cilium", harness.IPv4Only())
	s := n.Start(t)
	a := s.TryAllocate(t, harness.Request{Owner: "a", Family: "ipv6"})
	if a.Status != http.StatusBadGateway || !strings.Contains(string(a.Body), "ipv6") {
		t.Errorf("answered %s; want 502 and the family's name", a)
	}
}

func TestOwnerNotAdmitted(t *testing.T) {
	t.Parallel()
	n := nodeWith(t, harness.DualStack())
	s := n.Start(t, "--owners=router,health,kube-system/*")
	s.Allocate(t, harness.Request{Owner: "kube-system/pod"})
	wantRefusals(t, n, s, map[string]badRequest{
		"to allocate":               {"POST", "/v1/ipam?owner=ingress", 403, nil},
		"to restore":                {"POST", "/v1/ipam/10.15.0.9?owner=ingress", 403, nil},
		"without a name":            {"POST", "/v1/ipam", 403, nil},
		"with a name that is alike": {"POST", "/v1/ipam?owner=routers", 403, nil},
	})
}

// wantRefusals sends each request and compares both folders around it.
func wantRefusals(t *testing.T, n *harness.Node, s *harness.Sidecar, tests map[string]badRequest) {
	t.Helper()
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			before := n.Snapshot(t)
			a := s.Do(t, tt.method, tt.path)
			if a.Status != tt.status {
				t.Errorf("answered %s; want status %d", a, tt.status)
			}
			for _, says := range tt.says {
				if !strings.Contains(string(a.Body), says) {
					t.Errorf("answered %s; want it to say %q", a, says)
				}
			}
			before.WantSame(t, n.Snapshot(t))
		})
	}
}
