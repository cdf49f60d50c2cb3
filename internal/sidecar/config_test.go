package sidecar

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/options"
)

// valid returns a configuration that can work, in a separate directory.
func valid(t *testing.T) Config {
	t.Helper()
	dir, err := os.MkdirTemp("", "d") // t.TempDir is too long for a socket path
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return Config{Version: "test", Sidecar: options.Sidecar{
		SocketPath: filepath.Join(dir, "s"), SocketMode: 0o660,
		StateDir: filepath.Join(dir, "state"), CNIConfDir: filepath.Join(dir, "net.d"), CNIBinDirs: []string{filepath.Join(dir, "bin")},
		IPAMDefaultIPPool: "default", Pools: map[string]string{"default": ""}, NodeName: filepath.Base(dir), EnableIPv4: true, EnableIPv6: true,
		Owners: []string{"*"}, PluginTimeout: time.Minute, MaxPluginProcesses: 4, MaxQueuedRequests: 100,
		CNIIfName: "eth0", IPAMExpiration: time.Minute,
	}}
}

func TestValidate(t *testing.T) {
	cases := []struct {
		name   string
		change func(*Config)
		words  []string
	}{
		{"an option", func(c *Config) { c.NodeName = "" }, []string{"--node-name", `""`, "name of this node"}},
		{"socket path too long", func(c *Config) { c.SocketPath = "/" + strings.Repeat("s", 107) }, []string{"--socket-path", "108", "107"}},
		{"unknown group", func(c *Config) { c.SocketGroup = "no-such-group" }, []string{"--socket-group", "no-such-group"}},
		{"own network namespace", func(c *Config) { c.CNINetNS = "/proc/self/ns/net" }, []string{"--cni-netns", "/proc/self/ns/net"}},
		{"CNI variable for plugins", func(c *Config) { c.PluginEnv = []string{"CNI_ARGS"} }, []string{"--plugin-env", "CNI_ARGS"}},
		{"no plugin directory", func(c *Config) { c.CNIBinDirs = nil }, []string{"--cni-bin-dir"}},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			c := valid(t)
			tc.change(&c)
			err := c.Validate()
			if err == nil {
				t.Fatal("no error")
			}
			for _, want := range tc.words {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %q lacks %q", err, want)
				}
			}
			if _, err := os.Stat(c.StateDir); err == nil {
				t.Error("the state directory was created")
			}
		})
	}
	t.Run("valid", func(t *testing.T) {
		if err := valid(t).Validate(); err != nil {
			t.Error(err)
		}
	})
}

func TestPoolOrder(t *testing.T) {
	c := Config{Sidecar: options.Sidecar{IPAMDefaultIPPool: "blue", Pools: map[string]string{"default": "1", "blue": "", "a": "2"}}}
	if got := strings.Join(c.poolNames(), " "); got != "blue a default" {
		t.Errorf("order %q", got)
	}
}
