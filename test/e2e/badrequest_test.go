package e2e

import (
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

// badRequest is a request that must be refused without side effects.
type badRequest struct {
	method, path string
	status       int
	// texts must be in the response.
	texts []string
}

func TestBadRequest(t *testing.T) {
	t.Parallel()
	n := nodeWith(t, harness.DualStack())
	s := n.Start(t)
	held := s.Allocate(t, harness.Request{Owner: "router"})
	long := strings.Repeat("%C3%A4", 257) // 257 characters, 514 bytes

	tests := map[string]badRequest{
		"unknown family":                         {"POST", "/v1/ipam?owner=a&family=ipx", 422, []string{"family in query should be one of [ipv4 ipv6]"}},
		"restore address with prefix length":     {"POST", "/v1/ipam/10.15.0.9%2F24?owner=a", 400, nil},
		"release malformed address":              {"DELETE", "/v1/ipam/10.15.0.256", 400, nil},
		"allocate unknown pool":                  {"POST", "/v1/ipam?owner=a&pool=red", 502, []string{"red", "default"}},
		"owner over 512 bytes in 257 characters": {"POST", "/v1/ipam?owner=" + long, 422, []string{"owner", "512"}},
		"owner with control character":           {"POST", "/v1/ipam?owner=a%0Ab", 422, []string{"owner"}},
		"release unallocated address":            {"DELETE", "/v1/ipam/10.15.0.200", 404, nil},
		"restore address of another owner":       {"POST", "/v1/ipam/" + held.Address.IPv4 + "?owner=thief", 409, nil},
		"restore second address of a family":     {"POST", "/v1/ipam/10.15.0.77?owner=router", 500, []string{"router", held.Address.IPv4, "10.15.0.77"}},
		"unsupported method with address":        {"GET", "/v1/ipam/10.15.0.2", 405, nil},
	}
	wantRefusals(t, n, s, tests)
}

func TestFamilyDisabled(t *testing.T) {
	t.Parallel()
	n := nodeWith(t, harness.DualStack())
	s := n.Start(t, "--enable-ipv6=false")
	wantRefusals(t, n, s, map[string]badRequest{
		"allocate": {"POST", "/v1/ipam?owner=a&family=ipv6", 502, []string{"ipv6"}},
		"restore":  {"POST", "/v1/ipam/fd00:15::9?owner=a", 501, nil},
		"release":  {"DELETE", "/v1/ipam/fd00:15::9", 501, nil},
	})
}

// wantRefusals sends each request, and compares the plugin's store and the journal before and after it.
func wantRefusals(t *testing.T, n *harness.Node, s *harness.Daemon, tests map[string]badRequest) {
	t.Helper()
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			before := n.Snapshot(t)
			s.Do(t, tt.method, tt.path).WantError(t, tt.status, tt.texts...)
			before.WantSame(t, n.Snapshot(t))
		})
	}
}
