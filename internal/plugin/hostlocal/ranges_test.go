package hostlocal

import (
	"net/netip"
	"strings"
	"testing"
)

func TestParseInvalidConfig(t *testing.T) {
	for name, c := range map[string]struct{ ipam, want string }{
		"no ranges":                  {`{}`, "neither ranges nor a subnet"},
		"empty subnet":               {`{"ranges":[[{}]]}`, "ipam.ranges[0][0]"},
		"host bits in a subnet":      {`{"ranges":[[{"subnet":"10.1.0.1/24"}]]}`, "subnet is \"10.1.0.1/24\""},
		"subnet of two addresses":    {`{"ranges":[[{"subnet":"10.1.0.0/24"}],[{"subnet":"fd00::/127"}]]}`, "ipam.ranges[1][0]"},
		"mapped 4-in-6 subnet":       {`{"ranges":[[{"subnet":"::ffff:10.1.0.0/120"}]]}`, "subnet is"},
		"gateway with a zone":        {`{"ranges":[[{"subnet":"fd00::/64","gateway":"fe80::1%eth0"}]]}`, "zone"},
		"range start not an address": {`{"ranges":[[{"subnet":"10.1.0.0/24","rangeStart":"first"}]]}`, "first"},
	} {
		_, err := ParseConfig([]byte(`{"ipam":` + c.ipam + `}`))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want an error with %q", name, err, c.want)
		}
	}
}

func TestRanges(t *testing.T) {
	c, err := ParseConfig([]byte(`{"ipam":{"ranges":[[{"subnet":"10.1.0.0/24","rangeStart":"10.1.0.10","rangeEnd":"10.1.0.20"},{"subnet":"10.2.0.0/24"}],[{"subnet":"fd00::/120"}]]}}`))
	if err != nil {
		t.Fatal(err)
	}
	for ip, want := range map[string]bool{
		"10.1.0.9": false, "10.1.0.10": true, "10.1.0.20": true, "10.1.0.21": false,
		"10.2.0.0": false, "10.2.0.1": true, "10.2.0.254": true, "10.2.0.255": false,
		"fd00::": false, "fd00::1": true, "fd00::ff": true, "fd00::100": false, "::ffff:10.2.0.1": false,
	} {
		if _, err := c.Result([]netip.Addr{netip.MustParseAddr(ip)}); (err == nil) != want {
			t.Errorf("%s: got %v, want in a range: %v", ip, err, want)
		}
	}
}
