package doctor

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/delegated-ipam/delegated-ipam/api/models"
	"github.com/delegated-ipam/delegated-ipam/internal/daemon"
	"github.com/delegated-ipam/delegated-ipam/internal/daemon/nodelock"
	"github.com/delegated-ipam/delegated-ipam/internal/options"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin"
	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
)

// newConfig returns options with a new directory that has the default pool's network and no plugin.
func newConfig(t *testing.T) daemon.Config {
	t.Helper()
	dir := t.TempDir()
	conf := `{"cniVersion":"1.0.0","name":"pods","plugins":[{"type":"cilium-cni","ipam":{"type":"host-local","dataDir":"` + dir + `"}}]}`
	check.Must(t, os.WriteFile(filepath.Join(dir, "05.conflist"), []byte(conf), 0o600))
	c := daemon.Config{Daemon: options.Daemon{
		NodeName: fmt.Sprintf("inspect-%d-%s", os.Getpid(), filepath.Base(dir)), StateDir: filepath.Join(dir, "state"),
		CNIConfDir: dir, CNIBinDirs: []string{dir}, CNIIfName: "eth0", HostLocal: plugin.HostLocalProgram, PluginTimeout: time.Minute,
	}}
	c.SocketPath, c.SocketMode = filepath.Join(dir, "sock"), 0o660
	return c
}

// collectPools collects the pools of options without a daemon.
func collectPools(t *testing.T, c daemon.Config) []pool {
	t.Helper()
	o := &Observations{Config: &c}
	pools, err := o.collectPools()
	check.Must(t, err)
	return pools
}

func TestCollectPools(t *testing.T) {
	c := newConfig(t)
	c.Pools = map[string]string{"default": "", "blue": "blue"}
	pools := collectPools(t, c)
	first, second := pools[0], pools[1]
	if first.name != "default" || first.confErr != nil || first.network.Name != "pods" || !strings.Contains(first.status.Error, "failed to find plugin") {
		t.Errorf("got %+v; want the network, and no plugin", first)
	}
	check.True(t, first.plugin.StateDir != "" && first.plugin.NetNS != "", "got %+v; want what the profile says", first.plugin)
	check.True(t, second.name == "blue" && second.confErr != nil, "got %+v; want no network", second)
	if _, err := os.Lstat(c.StateDir); !os.IsNotExist(err) {
		t.Errorf("the state directory: %v; want none", err)
	}
}

// The status of a running daemon is used as it is.
func TestCollectServedPool(t *testing.T) {
	c := newConfig(t)
	o := &Observations{Config: &c, Status: &models.DelegatedIPAMStatus{Pools: []*models.PoolStatus{{Pool: "default", NotReady: "as served"}}}}
	pools, err := o.collectPools()
	check.Must(t, err)
	check.Equal(t, "status", pools[0].status.NotReady, "as served")
}

func TestLockHolder(t *testing.T) {
	c := newConfig(t)
	locks := nodelock.New(c.NodeName, "/state/one", "PID 1")
	t.Cleanup(locks.Release)
	check.Must(t, locks.Acquire("pods", 0))
	for range 2 { // the inspection does not release the lock
		check.Contains(t, collectPools(t, c)[0].status.Error, `network "pods" is served`, "/state/one")
	}
}

func TestCollectInvalidOption(t *testing.T) {
	c := newConfig(t)
	c.PluginEnv = []string{"CNI_PATH"}
	o := &Observations{}
	o.Collect(t.Context(), c, c.SocketPath, false)
	if len(o.pools) != 0 || o.Options.Invalid == nil || !strings.Contains(o.Options.Invalid.Error(), "--plugin-env") {
		t.Errorf("got %v; want an error that names the option", o.Options.Invalid)
	}
}
