package daemon

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/daemon/attachment"
	"github.com/delegated-ipam/delegated-ipam/internal/daemon/metrics"
	"github.com/delegated-ipam/delegated-ipam/internal/options"
	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
)

// valid returns a configuration that can work, in a separate directory.
func valid(t *testing.T) Config {
	t.Helper()
	dir, err := os.MkdirTemp("", "d") // t.TempDir is too long for a socket path
	check.Must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	return Config{Version: "test", Daemon: options.Daemon{
		SocketPath: filepath.Join(dir, "s"), SocketMode: 0o660,
		StateDir: filepath.Join(dir, "state"), CNIConfDir: filepath.Join(dir, "net.d"), CNIBinDirs: []string{filepath.Join(dir, "bin")},
		IPAMDefaultIPPool: "default", Pools: map[string]string{"default": ""}, NodeName: filepath.Base(dir), EnableIPv4: true, EnableIPv6: true,
		Owners: []string{"*"}, PluginTimeout: time.Minute, MaxPluginProcesses: 4, MaxQueuedRequests: 100, MaxAttachments: 100,
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
			check.Error(t, c.Validate(), tc.words...)
			check.Absent(t, c.StateDir)
		})
	}
	t.Run("valid", func(t *testing.T) {
		check.NoError(t, valid(t).Validate())
	})
}

func TestPoolOrder(t *testing.T) {
	c := Config{Daemon: options.Daemon{IPAMDefaultIPPool: "blue", Pools: map[string]string{"default": "1", "blue": "", "a": "2"}}}
	if got := strings.Join(c.poolNames(), " "); got != "blue a default" {
		t.Errorf("order %q", got)
	}
}

type disk struct{ err error }

func (d disk) Write(attachment.Record, ...string) error { return d.err }
func (d disk) Remove(string, ...string) error           { return d.err }
func (d disk) Available() error                         { return d.err }

func TestJournalFailures(t *testing.T) {
	full, failures := errors.New("disk full"), 0
	j := engineJournal{disk{full}, metrics.New(metrics.Options{}), func(error) { failures++ }}
	for name, err := range map[string]error{"Write": j.Write(attachment.Record{}), "Remove": j.Remove("pool", "owner"), "Available": j.Available()} {
		check.True(t, errors.Is(err, full), "%s returned %v; want %v", name, err, full)
	}
	j.Journal = disk{}
	if err := errors.Join(j.Write(attachment.Record{}), j.Remove("pool", "owner"), j.Available()); err != nil || failures != 3 {
		t.Errorf("got %v, and %d failures; want none, and 3 before", err, failures)
	}
}
