package app

import (
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// valid is a configuration that can work, in a folder of the test's own.
func valid(t *testing.T) Config {
	t.Helper()
	dir, err := os.MkdirTemp("", "d") // t.TempDir is too long for a socket path
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return Config{
		Version: "test", SocketPath: filepath.Join(dir, "s"), SocketMode: 0o660,
		StateDir: filepath.Join(dir, "state"), CNIConfDir: filepath.Join(dir, "net.d"), CNIBinDirs: []string{filepath.Join(dir, "bin")},
		Pools: map[string]string{"default": ""}, NodeName: filepath.Base(dir), EnableIPv4: true, EnableIPv6: true,
		Owners: []string{"*"}, PluginTimeout: 5 * time.Second, MaxPluginProcesses: 4, MaxQueuedRequests: 100,
		CNIIfName: "eth0", IPAMExpiration: time.Minute,
	}
}

func TestValidateNamesTheOptionWhatItGotAndWhatItTakes(t *testing.T) {
	cases := []struct {
		name   string
		change func(*Config)
		words  []string
	}{
		{"no node name", func(c *Config) { c.NodeName = "" }, []string{"--node-name", `""`, "name of this node"}},
		{"both families off", func(c *Config) { c.EnableIPv4, c.EnableIPv6 = false, false }, []string{"--enable-ipv4", "--enable-ipv6"}},
		{"a relative state folder", func(c *Config) { c.StateDir = "state" }, []string{"--state-dir", `"state"`, "absolute"}},
		{"a socket path that no client can name", func(c *Config) { c.SocketPath = "/" + strings.Repeat("s", 107) }, []string{"--socket-path", "108", "107"}},
		{"an unknown group", func(c *Config) { c.SocketGroup = "no-such-group" }, []string{"--socket-group", "no-such-group"}},
		{"an interface name with a slash", func(c *Config) { c.CNIIfName = "a/b" }, []string{"--cni-ifname", "a/b", "eth0"}},
		{"a mode with other bits", func(c *Config) { c.SocketMode = 0o4660 }, []string{"--socket-mode", "0660"}},
		{"an IPv6 address as IPv4 router", func(c *Config) { c.LocalRouterIPv4 = netip.MustParseAddr("fd00::1") }, []string{"--local-router-ipv4", "fd00::1", "an IPv4 address"}},
		{"an unspecified router address", func(c *Config) { c.LocalRouterIPv4 = netip.IPv4Unspecified() }, []string{"--local-router-ipv4", "0.0.0.0"}},
		{"an IPv4 router address in IPv6 form", func(c *Config) { c.LocalRouterIPv6 = netip.MustParseAddr("::ffff:1.2.3.4") }, []string{"--local-router-ipv6", "::ffff:1.2.3.4"}},
		{"an IPv4 range in IPv6 form", func(c *Config) { c.IPv6Range = netip.MustParsePrefix("::ffff:1.2.3.0/120") }, []string{"--ipv6-range", "::ffff:1.2.3.0"}},
		{"an interface name that is a folder", func(c *Config) { c.CNIIfName = ".." }, []string{"--cni-ifname", ".."}},
		{"neither folder nor file of configurations", func(c *Config) { c.CNIConfDir = "" }, []string{"--cni-conf-dir", "--cni-conf-file"}},
		{"an empty plugin folder", func(c *Config) { c.CNIBinDirs = []string{""} }, []string{"--cni-bin-dir"}},
		{"a socket that nobody could open", func(c *Config) { c.SocketMode = 0 }, []string{"--socket-mode", "0660"}},
		{"more plugin processes than a node can bear", func(c *Config) { c.MaxPluginProcesses = 99999999999 }, []string{"--max-plugin-processes", "99999999999", "1024"}},
		{"more queued requests than a node can bear", func(c *Config) { c.MaxQueuedRequests = 1 << 30 }, []string{"--max-queued-requests", "1 to"}},
		{"an IPv4 address as IPv6 router", func(c *Config) { c.LocalRouterIPv6 = netip.MustParseAddr("10.0.0.1") }, []string{"--local-router-ipv6", "10.0.0.1", "an IPv6 address"}},
		{"an IPv6 range as IPv4 range", func(c *Config) { c.IPv4Range = netip.MustParsePrefix("fd00::/64") }, []string{"--ipv4-range", "fd00::/64"}},
		{"an IPv4 range as IPv6 range", func(c *Config) { c.IPv6Range = netip.MustParsePrefix("10.0.0.0/24") }, []string{"--ipv6-range", "10.0.0.0/24"}},
		{"an empty owner pattern", func(c *Config) { c.Owners = []string{""} }, []string{"--owners", "empty"}},
		{"a pool name with a slash", func(c *Config) { c.Pools["a/b"] = "n" }, []string{"--pool", "a/b"}},
		{"two pools on one network", func(c *Config) { c.Pools["a"], c.Pools["b"] = "n", "n" }, []string{"--pool", `"a"`, `"b"`, `"n"`}},
		{"no pool", func(c *Config) { c.Pools = nil }, []string{"--pool"}},
		{"no plugin process", func(c *Config) { c.MaxPluginProcesses = 0 }, []string{"--max-plugin-processes", "0", "1 to 1024"}},
		{"no room in the queue", func(c *Config) { c.MaxQueuedRequests = -1 }, []string{"--max-queued-requests", "-1"}},
		{"a negative release delay", func(c *Config) { c.ReleaseDelay = -time.Second }, []string{"--release-delay", "-1s"}},
		{"a negative verify interval", func(c *Config) { c.VerifyInterval = -time.Second }, []string{"--verify-interval", "-1s"}},
		{"no time for a plugin", func(c *Config) { c.PluginTimeout = 0 }, []string{"--plugin-timeout", "0s"}},
		{"no time to confirm", func(c *Config) { c.IPAMExpiration = 0 }, []string{"--ipam-expiration", "0s"}},
		{"our own network namespace", func(c *Config) { c.CNINetNS = "/proc/self/ns/net" }, []string{"--cni-netns", "/proc/self/ns/net"}},
		{"a CNI variable for plugins", func(c *Config) { c.PluginEnv = []string{"CNI_ARGS"} }, []string{"--plugin-env", "CNI_ARGS"}},
		{"no plugin folder", func(c *Config) { c.CNIBinDirs = nil }, []string{"--cni-bin-dir"}},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			c := valid(t)
			tc.change(&c)
			err := c.Validate()
			if err == nil {
				t.Fatal("it was taken")
			}
			for _, want := range tc.words {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %q does not name %q", err, want)
				}
			}
			if _, err := os.Stat(c.StateDir); err == nil {
				t.Error("the state folder was made")
			}
		})
	}
	if err := valid(t).Validate(); err != nil {
		t.Errorf("a valid configuration: %v", err)
	}
}

func TestPoolsAreShownWithTheDefaultFirst(t *testing.T) {
	c := Config{Pools: map[string]string{"b": "1", "default": "", "a": "2"}}
	if got := strings.Join(c.poolNames(), " "); got != "default a b" {
		t.Errorf("order %q", got)
	}
}
