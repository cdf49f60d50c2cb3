package plugins

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
	"github.com/delegated-ipam/delegated-ipam/test/calico"
	"github.com/delegated-ipam/delegated-ipam/test/cluster"
	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

type calicoBackend struct {
	etcd *calico.Etcd
	node *harness.Node
}

func (b calicoBackend) stall(t *testing.T)  { b.etcd.Stall(t) }
func (b calicoBackend) resume(t *testing.T) { b.etcd.Resume(t) }

// waiting waits for an ADD that has connected to etcd.
func (b calicoBackend) waiting(t *testing.T) {
	t.Helper()
	harness.Eventually(t, "an ADD", func() error {
		for _, pid := range pluginsOf(t, b.node) {
			files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid)) // it may have ended
			for _, file := range files {
				if target, _ := os.Readlink(file); strings.HasPrefix(target, "socket:") {
					return nil
				}
			}
		}
		return errors.New("no plugin runs that has a socket")
	})
}

func TestCalico(t *testing.T) {
	n := newNode(t, "calico-ipam", nil, nil)
	e := calico.StartEtcd(t, n.Dir, cluster.MustEnv(t, "PLUGIN_TEST_ETCD", "plugin-test"), "10.15.0.0/24")
	n.Store = e.Leases
	plugin := map[string]any{"type": "cilium-cni", "ipam": map[string]any{"type": "calico-ipam"}}
	calico.Configure(plugin, filepath.Join(n.Dir, "calico.log"))
	conf, err := json.Marshal(map[string]any{"cniVersion": "1.0.0", "name": networkName, "plugins": []any{plugin}})
	check.Must(t, err)
	n.WriteConf(t, "05-pods.conflist", conf)
	r := try(t, n, "calico-ipam", map[string]string{
		"repeatedAdd": "another-address", "verifyBy": "nothing", "checkProves": "nothing", "requests": "[CNI_ARGS]",
		"requestForm": "address", "unique": "true", "dangers": "<nil>", "delNotHeld": "<nil>",
	})
	if len(r.Differences) > 0 {
		t.Errorf("profile try differs from the shipped profile in %v", r.Differences)
	}
	testServe(t, n, calicoBackend{e, n})
}
