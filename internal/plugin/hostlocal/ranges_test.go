package hostlocal

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
	"github.com/delegated-ipam/delegated-ipam/test/scenario"
)

// TestRanges runs the scenarios of testdata/ranges.txt.
func TestRanges(t *testing.T) {
	scenario.Each(t, "testdata/ranges.txt", func(t *testing.T, lines []string) {
		var c Config
		var err error
		for _, line := range lines {
			command, rest, _ := strings.Cut(line, " ")
			switch words := strings.Fields(rest); command {
			case "ipam":
				c, err = ParseConfig([]byte(`{"ipam":` + rest + `}`))
			case "error":
				check.Error(t, err, rest)
			case "exclude":
				c = c.Without(prefixes(words...))
			case "size":
				check.NoError(t, err)
				check.Equal(t, command, fmt.Sprint(c.Size(netip.Addr.Is4), c.Size(netip.Addr.Is6)), rest)
			case "inside", "outside":
				for _, ip := range words {
					_, err := c.Result([]netip.Addr{netip.MustParseAddr(ip)})
					check.True(t, (err == nil) == (command == "inside"), "%s: got %v; want it %s", ip, err, command)
				}
			default:
				t.Fatalf("unknown command %q", line)
			}
		}
	})
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
