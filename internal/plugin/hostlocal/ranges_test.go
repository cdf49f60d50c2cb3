package hostlocal

import (
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
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

func TestSize(t *testing.T) {
	for name, tt := range map[string]struct {
		ranges string
		v4, v6 float64
	}{
		"defaults":            {`[[{"subnet":"10.1.0.0/24"}]]`, 253, 0},
		"smallest":            {`[[{"subnet":"10.1.0.0/30"}]]`, 1, 0},
		"start and end":       {`[[{"subnet":"10.1.0.0/24","rangeStart":"10.1.0.10","rangeEnd":"10.1.0.19"}]]`, 10, 0},
		"gateway inside":      {`[[{"subnet":"10.1.0.0/24","rangeStart":"10.1.0.10","rangeEnd":"10.1.0.19","gateway":"10.1.0.12"}]]`, 9, 0},
		"several, two family": {`[[{"subnet":"10.1.0.0/24"},{"subnet":"10.2.0.0/24"}],[{"subnet":"fd00::/120"}]]`, 506, 254},
		"large":               {`[[{"subnet":"fd00::/64"}]]`, 0, 1 << 64},
		"end before start":    {`[[{"subnet":"10.1.0.0/24","rangeStart":"10.1.0.20","rangeEnd":"10.1.0.9"}]]`, 0, 0},
		"excluded":            {`[[{"subnet":"10.9.0.0/24"}],[{"subnet":"fd09::/120"}]]`, 253 - 16 - 1, 254 - 16},
		"excluded gateway":    {`[[{"subnet":"10.9.1.0/24"}]]`, 254 - 3, 0},
		"all excluded":        {`[[{"subnet":"10.8.0.0/24"}]]`, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			c, err := ParseConfig([]byte(`{"ipam":{"ranges":` + tt.ranges + `}}`))
			if err != nil {
				t.Fatal(err)
			}
			c = c.Without(prefixes("10.9.0.16/28", "10.9.0.16/28", "10.9.0.18/31", "10.9.0.255/32", "10.9.0.100/32", "10.9.1.0/30", "10.8.0.0/16", "fd09::f0/124"))
			if v4, v6 := c.Size(netip.Addr.Is4), c.Size(netip.Addr.Is6); v4 != tt.v4 || v6 != tt.v6 {
				t.Errorf("got %g and %g addresses; want %g and %g", v4, v6, tt.v4, tt.v6)
			}
		})
	}
}

func prefixes(all ...string) (parsed []netip.Prefix) {
	for _, text := range all {
		parsed = append(parsed, netip.MustParsePrefix(text))
	}
	return parsed
}

// The addresses of files count that appear and disappear, also of others, but not gateways and excluded ones.
func TestUsed(t *testing.T) {
	c, err := ParseConfig([]byte(`{"ipam":{"ranges":[[{"subnet":"10.1.0.0/24"}],[{"subnet":"fd00::/120"}]]}}`))
	check.Must(t, err)
	c = c.Without(prefixes("10.1.0.16/28"))
	var stores Stores
	s := Store{Dir: filepath.Join(t.TempDir(), "net")}
	used := func(want4, want6 float64) {
		t.Helper()
		if v4, v6, err := stores.Used(s, c); err != nil || v4 != want4 || v6 != want6 {
			t.Errorf("got %g, %g, %v; want %g and %g", v4, v6, err, want4, want6)
		}
		ips, err := s.names() // where the directory cannot be watched
		if v4, v6 := c.use(slices.Values(ips)); err != nil || v4 != want4 || v6 != want6 {
			t.Errorf("by names got %g, %g, %v; want %g and %g", v4, v6, err, want4, want6)
		}
	}
	used(0, 0)
	check.Must(t, os.Mkdir(s.Dir, 0o755))
	used(0, 0)
	for _, name := range []string{"10.1.0.2", "10.1.0.1", "10.1.0.9", "10.1.0.17", "10.2.0.9", "fd00::5", "FD00::6", "lock", "last_reserved_ip.0"} {
		check.Must(t, os.WriteFile(filepath.Join(s.Dir, name), nil, 0o600))
	}
	used(2, 1)
	check.Must(t, os.Remove(filepath.Join(s.Dir, "10.1.0.9")))
	used(1, 1)
	s.Dir = filepath.Join(s.Dir, "lock")
	if _, _, err := stores.Used(s, c); err == nil {
		t.Error("a file was read as a directory")
	}
}
