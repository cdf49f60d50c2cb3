package plugins

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
	"github.com/delegated-ipam/delegated-ipam/test/cluster"
	"github.com/delegated-ipam/delegated-ipam/test/harness"
	"github.com/delegated-ipam/delegated-ipam/test/oracle"
)

// calicoEtcd is the etcd of calico-ipam. Its endpoint has the JSON API of etcd, too.
type calicoEtcd struct {
	process *cluster.Process
	node    *harness.Node
}

const etcdEndpoint = "http://127.0.0.1:2379"

func newCalicoEtcd(t *testing.T, n *harness.Node) *calicoEtcd {
	t.Helper()
	program := cluster.NewProgram(t, n.Dir, "etcd", nil,
		cluster.MustEnv(t, "PLUGIN_TEST_ETCD", "plugin-test"), "--data-dir="+filepath.Join(n.Dir, "etcd"), "--unsafe-no-fsync=true")
	e := &calicoEtcd{program.MustStart(t), n}
	for resource, spec := range map[string]string{
		"IPPool ippools/pool": `{"cidr": "10.15.0.0/24", "blockSize": 26, "ipipMode": "Never", "vxlanMode": "Never", "nodeSelector": "all()", "allowedUses": ["Workload"]}`,
		"Node nodes/node-1":   `{}`,
	} {
		kind, path, _ := strings.Cut(resource, " ")
		_, name, _ := strings.Cut(path, "/")
		value := fmt.Sprintf(`{"kind": %q, "apiVersion": "projectcalico.org/v3", "metadata": {"name": %q, "uid": "11111111-2222-4333-8444-555555555555"}, "spec": %s}`, kind, name, spec)
		harness.Eventually(t, "etcd", func() error {
			return e.post("put", map[string]any{"key": []byte("/calico/resources/v3/projectcalico.org/" + path), "value": []byte(value)}, nil)
		})
	}
	return e
}

// post calls the JSON API, in which keys and values are base64.
func (*calicoEtcd) post(verb string, request, response any) error {
	data, err := json.Marshal(request)
	if err != nil {
		return err
	}
	r, err := http.Post(etcdEndpoint+"/v3/kv/"+verb, "application/json", bytes.NewReader(data))
	if err != nil {
		return err
	}
	defer r.Body.Close()
	if r.StatusCode != http.StatusOK {
		return errors.New(r.Status)
	}
	if response == nil {
		return nil
	}
	return json.NewDecoder(r.Body).Decode(response)
}

func (e *calicoEtcd) leases() (all []oracle.Lease, err error) {
	const blocks = "/calico/ipam/v2/assignment/"
	var found struct{ KVs []struct{ Value []byte } }
	if err := e.post("range", map[string]any{"key": []byte(blocks), "range_end": []byte(blocks[:len(blocks)-1] + "0")}, &found); err != nil {
		return nil, err
	}
	for _, kv := range found.KVs {
		var block struct {
			CIDR        netip.Prefix
			Allocations []*int
			Attributes  []struct {
				HandleID string `json:"handle_id"`
			}
		}
		if err := json.Unmarshal(kv.Value, &block); err != nil {
			return nil, err
		}
		ip := block.CIDR.Addr()
		for _, attribute := range block.Allocations {
			if attribute != nil {
				network, id, _ := strings.Cut(block.Attributes[*attribute].HandleID, ".")
				all = append(all, oracle.Lease{Network: network, IP: ip, ContainerID: id, Interface: "eth0"})
			}
			ip = ip.Next()
		}
	}
	return all, nil
}

func (e *calicoEtcd) stall(t *testing.T) {
	t.Helper()
	check.Must(t, syscall.Kill(e.process.PID(), syscall.SIGSTOP))
}

func (e *calicoEtcd) resume(t *testing.T) {
	t.Helper()
	check.Must(t, syscall.Kill(e.process.PID(), syscall.SIGCONT))
}

// waiting waits for an ADD that has connected to etcd.
func (e *calicoEtcd) waiting(t *testing.T) {
	t.Helper()
	harness.Eventually(t, "an ADD", func() error {
		for _, pid := range pluginsOf(t, e.node) {
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
	e := newCalicoEtcd(t, n)
	n.Store = e.leases
	conf, err := json.Marshal(map[string]any{"cniVersion": "1.0.0", "name": networkName, "plugins": []any{map[string]any{
		"type": "cilium-cni", "datastore_type": "etcdv3", "etcd_endpoints": etcdEndpoint, "nodename": "node-1",
		"log_file_path": filepath.Join(n.Dir, "calico.log"), "ipam": map[string]any{"type": "calico-ipam"},
	}}})
	check.Must(t, err)
	n.WriteConf(t, "05-pods.conflist", conf)
	r := try(t, n, "calico-ipam", map[string]string{
		"repeatedAdd": "another-address", "verifyBy": "nothing", "checkProves": "nothing", "requests": "[CNI_ARGS]",
		"requestForm": "address", "unique": "true", "dangers": "<nil>", "delNotHeld": "<nil>",
	})
	if len(r.Differences) > 0 {
		t.Errorf("profile try differs from the shipped profile in %v", r.Differences)
	}
	testServe(t, n, e)
}
