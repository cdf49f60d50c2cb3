package attachment

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
)

// An error names a request only where the plugin got one, and the configuration only where no request
// limited the result.
func TestAcceptErrors(t *testing.T) {
	v4, v6 := []Family{IPv4}, []Family{IPv6}
	ip := netip.MustParseAddr("10.0.0.9")
	asked := []netip.Prefix{netip.PrefixFrom(ip, 32)}
	for name, c := range map[string]struct {
		request  Want
		asked    []netip.Prefix
		result   string
		lastOnly bool
		want     string
	}{
		"requested, another one":  {Want{Families: v4}, asked, "10.0.0.1/24", false, "requested 10.0.0.9, plugin returned [10.0.0.1]"},
		"requested, one more":     {Want{Families: v4}, asked, "10.0.0.9/24 10.0.0.1/24", false, "requested 10.0.0.9, plugin returned [10.0.0.9 10.0.0.1], which has 10.0.0.1 in addition"},
		"requested, one before":   {Want{Families: v4}, asked, "10.0.0.1/24 10.0.0.9/24", false, "in addition"},
		"of another range set":    {Want{Families: v4}, asked, "10.0.1.1/24 10.0.0.9/24", true, ""},
		"of a later range set":    {Want{Families: v4}, asked, "10.0.0.9/24 10.0.1.1/24", true, "in addition"},
		"required, not requested": {Want{Required: []netip.Addr{ip}, Families: v4}, nil, "10.0.0.1/24", false, "10.0.0.9 is required, but cannot be requested from the plugin, which returned [10.0.0.1]"},
		"required and requested":  {Want{Required: []netip.Addr{ip}, Families: v4}, asked, "10.0.0.1/24", false, "requested 10.0.0.9, plugin returned [10.0.0.1]"},
		"one family requested":    {Want{Families: v6}, asked, "10.0.0.9/24", false, "for the request of [10.0.0.9/32], and no address of [ipv6]"},
		"one family configured":   {Want{Families: v6}, nil, "10.0.0.1/24", false, "plugin returned [10.0.0.1], and no address of [ipv6]: its configuration has no range of that family"},
		"any family":              {Want{Families: append(v4, v6...), Any: true}, nil, "10.0.0.1/24", false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			var res call.Result
			for _, p := range strings.Fields(c.result) {
				res.Addresses = append(res.Addresses, call.Address{Prefix: netip.MustParsePrefix(p)})
			}
			_, err := c.request.accept(res, c.asked, c.lastOnly, func(netip.Addr) bool { return false })
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}
