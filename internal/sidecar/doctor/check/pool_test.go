package check

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/internal/cniconf"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/profile"
	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/nodelock"
)

// newConfig returns options with a new directory, a network for the pool "default", none for
// the pool "blue", and no plugin. The second result is the lock file of plugin calls.
func newConfig(t *testing.T) (Config, string) {
	t.Helper()
	dir := t.TempDir()
	conf := `{"cniVersion":"1.0.0","name":"pods","plugins":[{"type":"cilium-cni","ipam":{"type":"host-local"}}]}`
	if err := os.WriteFile(filepath.Join(dir, "05.conflist"), []byte(conf), 0o600); err != nil {
		t.Fatal(err)
	}
	lockFile := filepath.Join(dir, "state", "plugins.lock")
	return Config{
		NodeName: fmt.Sprintf("inspect-%d-%s", os.Getpid(), filepath.Base(dir)),
		Conf:     cniconf.Options{Dir: dir, Pools: map[string]string{"default": "", "blue": "blue"}},
		Plugin:   plugin.Options{BinDirs: []string{dir}, LockFile: lockFile, Profiles: profile.Load},
	}, lockFile
}

func TestCollectPools(t *testing.T) {
	c, lockFile := newConfig(t)
	c.Plugin.NetNS = "/proc/self/ns/net"
	pools, err := collectPools(t.Context(), c, nil)
	if err != nil || len(pools) != 2 {
		t.Fatalf("got %+v, %v; want two pools", pools, err)
	}
	first, second := pools[0], pools[1]
	if first.Name != "default" || first.ConfErr != nil || first.Network.Name != "pods" || first.Plugin.FindErr == nil {
		t.Errorf("got %+v; want the network, and no plugin", first)
	}
	if first.NetNSErr == nil || !strings.Contains(first.NetNSErr.Error(), "of this process") || first.Plugin.NetNS == "" {
		t.Errorf("got %+v; want the namespace rejected and the rest inspected", first)
	}
	if second.Name != "blue" || second.ConfErr == nil {
		t.Errorf("got %+v; want no network", second)
	}
	if _, err := os.Lstat(filepath.Dir(lockFile)); !os.IsNotExist(err) {
		t.Errorf("the state directory: %v; want none", err)
	}
}

func TestLockHolder(t *testing.T) {
	c, _ := newConfig(t)
	holder := func() string {
		t.Helper()
		pools, err := collectPools(t.Context(), c, nil)
		if err != nil {
			t.Fatal(err)
		}
		return pools[0].LockHolder
	}
	if got := holder(); got != "" {
		t.Errorf("%q holds the lock; want no process", got)
	}
	locks := nodelock.New(c.NodeName, "/state/one", "PID 1")
	t.Cleanup(locks.Release)
	if err := locks.Acquire("pods", 0); err != nil {
		t.Fatal(err)
	}
	if got := holder(); !nodelock.HolderHas(got, "/state/one") || nodelock.HolderHas(got, "/state/on") || nodelock.HolderHas(got, "one") {
		t.Errorf("%q holds the lock; want the sidecar with its state directory", got)
	}
	if got := holder(); got == "" {
		t.Error("inspection has released the lock")
	}
}

func TestCollectPoolsInvalid(t *testing.T) {
	c, _ := newConfig(t)
	c.Plugin.Env = []string{"CNI_PATH"}
	if _, err := collectPools(t.Context(), c, nil); err == nil || !strings.Contains(err.Error(), "--plugin-env") {
		t.Errorf("got %v; want an error that names the option", err)
	}
}
