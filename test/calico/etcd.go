// Package calico runs a real etcd for the real calico-ipam.
package calico

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
	"github.com/delegated-ipam/delegated-ipam/test/cluster"
	"github.com/delegated-ipam/delegated-ipam/test/harness"
	"github.com/delegated-ipam/delegated-ipam/test/oracle"
)

// Etcd is the datastore of calico-ipam. Its endpoint has the JSON API of etcd, too.
type Etcd struct{ process *cluster.Process }

const (
	endpoint = "http://127.0.0.1:2379"
	nodeName = "node-1"
)

// StartEtcd starts the program, with its data and log in dir, and adds a node and a pool of a /24.
func StartEtcd(t *testing.T, dir, program, cidr string) *Etcd {
	t.Helper()
	e := &Etcd{cluster.NewProgram(t, dir, "etcd", nil, program, "--data-dir="+filepath.Join(dir, "etcd"), "--unsafe-no-fsync=true").MustStart(t)}
	for resource, spec := range map[string]string{
		"IPPool ippools/pool":    `{"cidr": "` + cidr + `", "blockSize": 26, "ipipMode": "Never", "vxlanMode": "Never", "nodeSelector": "all()", "allowedUses": ["Workload"]}`,
		"Node nodes/" + nodeName: `{}`,
	} {
		kind, path, _ := strings.Cut(resource, " ")
		_, name, _ := strings.Cut(path, "/")
		value := fmt.Sprintf(`{"kind": %q, "apiVersion": "projectcalico.org/v3", "metadata": {"name": %q, "uid": "11111111-2222-4333-8444-555555555555"}, "spec": %s}`, kind, name, spec)
		harness.Eventually(t, "etcd", func() error {
			return post("put", map[string]any{"key": []byte("/calico/resources/v3/projectcalico.org/" + path), "value": []byte(value)}, nil)
		})
	}
	return e
}

// Configure adds what calico-ipam reads beside the ipam section to the configuration of a CNI plugin.
func Configure(plugin map[string]any, logFile string) {
	plugin["datastore_type"], plugin["etcd_endpoints"] = "etcdv3", endpoint
	plugin["nodename"], plugin["log_file_path"] = nodeName, logFile
}

// post calls the JSON API, in which keys and values are base64.
func post(verb string, request, response any) error {
	data, err := json.Marshal(request)
	if err != nil {
		return err
	}
	r, err := http.Post(endpoint+"/v3/kv/"+verb, "application/json", bytes.NewReader(data))
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

// Leases returns the addresses that are allocated.
func (*Etcd) Leases() (all []oracle.Lease, err error) {
	const blocks = "/calico/ipam/v2/assignment/"
	var found struct{ KVs []struct{ Value []byte } }
	if err := post("range", map[string]any{"key": []byte(blocks), "range_end": []byte(blocks[:len(blocks)-1] + "0")}, &found); err != nil {
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

// Stall stops the process until Resume.
func (e *Etcd) Stall(t *testing.T) {
	t.Helper()
	check.Must(t, syscall.Kill(e.process.PID(), syscall.SIGSTOP))
}

// Resume continues the process.
func (e *Etcd) Resume(t *testing.T) {
	t.Helper()
	check.Must(t, syscall.Kill(e.process.PID(), syscall.SIGCONT))
}
