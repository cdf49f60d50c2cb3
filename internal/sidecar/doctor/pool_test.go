package doctor

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/options"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin"
	"github.com/delegated-ipam/delegated-ipam/internal/sidecar"
	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/nodelock"
	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
)

// newConfig returns options with a new directory that has the default pool's network and no plugin.
func newConfig(t *testing.T) sidecar.Config {
	t.Helper()
	dir := t.TempDir()
	conf := `{"cniVersion":"1.0.0","name":"pods","plugins":[{"type":"cilium-cni","ipam":{"type":"host-local","dataDir":"` + dir + `"}}]}`
	check.Must(t, os.WriteFile(filepath.Join(dir, "05.conflist"), []byte(conf), 0o600))
	c := sidecar.Config{Sidecar: options.Sidecar{
		NodeName: fmt.Sprintf("inspect-%d-%s", os.Getpid(), filepath.Base(dir)), StateDir: filepath.Join(dir, "state"),
		CNIConfDir: dir, CNIBinDirs: []string{dir}, CNIIfName: "eth0", HostLocal: plugin.HostLocalProgram, PluginTimeout: time.Minute,
	}}
	c.SocketPath, c.SocketMode = filepath.Join(dir, "sock"), 0o660
	return c
}

func TestCollectPools(t *testing.T) {
	c := newConfig(t)
	c.Pools = map[string]string{"default": "", "blue": "blue"}
	c.CNINetNS = "/proc/self/ns/net"
	pools, err := collectPools(t.Context(), c)
	if err != nil || len(pools) != 2 {
		t.Fatalf("got %+v, %v; want two pools", pools, err)
	}
	first, second := pools[0], pools[1]
	if first.name != "default" || first.confErr != nil || first.network.Name != "pods" || first.plugin.FindErr == nil {
		t.Errorf("got %+v; want the network, and no plugin", first)
	}
	if first.netNSErr == nil || !strings.Contains(first.netNSErr.Error(), "of this process") || first.plugin.NetNS == "" {
		t.Errorf("got %+v; want the namespace rejected and the rest inspected", first)
	}
	check.True(t, second.name == "blue" && second.confErr != nil, "got %+v; want no network", second)
	if _, err := os.Lstat(c.StateDir); !os.IsNotExist(err) {
		t.Errorf("the state directory: %v; want none", err)
	}
}

func TestLockHolder(t *testing.T) {
	c := newConfig(t)
	holder := func() string {
		t.Helper()
		pools, err := collectPools(t.Context(), c)
		check.Must(t, err)
		return pools[0].lockHolder
	}
	if got := holder(); got != "" {
		t.Errorf("%q holds the lock; want no process", got)
	}
	locks := nodelock.New(c.NodeName, "/state/one", "PID 1")
	t.Cleanup(locks.Release)
	check.Must(t, locks.Acquire("pods", 0))
	if got := holder(); !nodelock.HolderHas(got, "/state/one") || nodelock.HolderHas(got, "/state/on") || nodelock.HolderHas(got, "one") {
		t.Errorf("%q holds the lock; want the sidecar with its state directory", got)
	}
	if got := holder(); got == "" {
		t.Error("inspection has released the lock")
	}
}

func TestCollectPoolsInvalid(t *testing.T) {
	c := newConfig(t)
	c.PluginEnv = []string{"CNI_PATH"}
	if _, err := collectPools(t.Context(), c); err == nil || !strings.Contains(err.Error(), "--plugin-env") {
		t.Errorf("got %v; want an error that names the option", err)
	}
}
