package harness

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/test/oracle"
)

// sidecarID begins every container ID of the sidecar.
const sidecarID = "cilium-agent-"

// Pods runs a network's plugin as cilium-cni does for pods, beside the sidecar.
// Its methods may be called at the same time.
type Pods struct {
	plugin, binDir string
	stdin          []byte
}

// PodsOf returns the pods of a network of the node. From now on Store leaves pods
// out: they are in no list.
func (n *Node) PodsOf(t testing.TB, nw Network) Pods {
	t.Helper()
	section := nw.ipam(n.StoreDir)
	stdin, err := json.Marshal(map[string]any{"cniVersion": nw.CNIVersion, "name": nw.Name, "type": "cilium-cni", "ipam": section})
	if err != nil {
		t.Fatal(err)
	}
	if all := n.Store; all != nil {
		n.Store = func() ([]oracle.Lease, error) {
			leases, err := all()
			return slices.DeleteFunc(leases, ofPod), err
		}
	}
	return Pods{plugin: filepath.Join(n.BinDir, fmt.Sprint(section["type"])), binDir: n.BinDir, stdin: stdin}
}

func ofPod(l oracle.Lease) bool { return !strings.HasPrefix(l.ContainerID, sidecarID) }

// Add runs an ADD for a pod and returns its addresses.
func (p Pods) Add(t testing.TB, id string) []string {
	t.Helper()
	ips, err := p.TryAdd(id)
	if err != nil {
		t.Fatal(err)
	}
	return ips
}

// TryAdd is Add that returns the error: a full range, say.
func (p Pods) TryAdd(id string) ([]string, error) {
	out, err := p.call("ADD", id)
	if err != nil {
		return nil, err
	}
	var result struct{ IPs []struct{ Address string } }
	if err := json.Unmarshal(out, &result); err != nil {
		return nil, fmt.Errorf("the result %s of a pod's ADD: %w", out, err)
	}
	var ips []string
	for _, ip := range result.IPs {
		bare, _, _ := strings.Cut(ip.Address, "/")
		ips = append(ips, bare)
	}
	return ips, nil
}

// Del runs a DEL for a pod.
func (p Pods) Del(t testing.TB, id string) {
	t.Helper()
	if _, err := p.call("DEL", id); err != nil {
		t.Fatal(err)
	}
}

func (p Pods) call(verb, id string) ([]byte, error) {
	cmd := exec.Command(p.plugin)
	cmd.Stdin = bytes.NewReader(p.stdin)
	cmd.Env = []string{
		"CNI_COMMAND=" + verb, "CNI_CONTAINERID=" + id, "CNI_IFNAME=eth0", "CNI_NETNS=/var/run/netns/" + id,
		"CNI_ARGS=IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=" + id, "CNI_PATH=" + p.binDir,
	}
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("a pod's %s: %w: %s", verb, err, out)
	}
	return out, nil
}
