package profiletry

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
)

func TestNeighbours(t *testing.T) {
	for name, c := range map[string]struct{ prefix, gateway, want string }{
		"above":           {"10.1.0.5/24", "10.1.0.1", "10.1.0.6/24, 10.1.0.7/24"},
		"not the gateway": {"10.1.0.5/24", "10.1.0.6", "10.1.0.7/24, 10.1.0.8/24"},
		"last":            {"10.1.0.254/24", "10.1.0.1", "10.1.0.253/24, 10.1.0.252/24"},
		"small subnet":    {"10.1.0.2/30", "10.1.0.1", ""},
		"no subnet":       {"10.1.0.5/32", "", "10.1.0.6/32, 10.1.0.7/32"},
		"IPv6":            {"fd00::5/120", "fd00::1", "fd00::6/120, fd00::7/120"},
	} {
		t.Run(name, func(t *testing.T) {
			a := call.Address{Prefix: netip.MustParsePrefix(c.prefix)}
			if c.gateway != "" {
				a.Gateway = netip.MustParseAddr(c.gateway)
			}
			var got []string
			for _, p := range neighbours(a, 2) {
				got = append(got, p.String())
			}
			if strings.Join(got, ", ") != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}
