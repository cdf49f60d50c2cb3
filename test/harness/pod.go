package harness

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
	"github.com/delegated-ipam/delegated-ipam/test/oracle"
)

// Pods calls a network's plugin for pods as cilium-cni does, besides the daemon. Its methods
// may be called concurrently.
type Pods struct {
	plugin, binDir string
	stdin          []byte
	// host and netns are the namespaces of DelegatedBy.
	host, netns string
	// Name is K8S_POD_NAME; empty for the container ID.
	Name string
}

// PodsOf returns the pods of a network of the node. From now on Store omits the leases of
// pods, which the daemon does not list.
func (n *Node) PodsOf(t testing.TB, nw Network) Pods {
	t.Helper()
	n.omitPods()
	return n.podsOf(t, nw)
}

func (n *Node) podsOf(t testing.TB, nw Network) Pods {
	t.Helper()
	section := nw.ipam(n.StoreDir)
	stdin, err := json.Marshal(map[string]any{"cniVersion": nw.CNIVersion, "name": nw.Name, "type": "cilium-cni", "ipam": section})
	check.Must(t, err)
	return Pods{plugin: filepath.Join(n.BinDir, fmt.Sprint(section["type"])), binDir: n.BinDir, stdin: stdin}
}

// cniPlugin is the type of the plugin through which pods get their addresses from the daemon.
const cniPlugin = "delegated-ipam-cni"

// PodsThrough writes a network whose pods get their addresses through the daemon, which lists their
// leases, and returns them.
func (n *Node) PodsThrough(t testing.TB, file string, nw Network) Pods {
	t.Helper()
	nw.Socket, nw.Spool = n.Socket, n.Spool()
	n.install(t, fromEnv(t, EnvCNI))
	n.WriteNetwork(t, file, nw)
	return n.podsOf(t, nw)
}

// Spool returns the directory for DELs while the daemon is away.
func (n *Node) Spool() string { return filepath.Join(n.StateDir, "spool") }

// omitPods makes Store omit the leases of pods, which the daemon does not list.
func (n *Node) omitPods() {
	all := n.Store
	if all == nil {
		return
	}
	n.Store = func() ([]oracle.Lease, error) {
		leases, err := all()
		ofPod := func(l oracle.Lease) bool { return !strings.HasPrefix(l.ContainerID, "cilium-agent-") }
		return slices.DeleteFunc(leases, ofPod), err
	}
}

// DelegatedBy returns the pods as those of a real plugin that creates their interface and delegates
// IPAM. conf is its configuration, host the network namespace in which it runs, pod that of its one pod.
func (p Pods) DelegatedBy(t testing.TB, conf map[string]any, host, pod string) Pods {
	t.Helper()
	config := map[string]any{}
	check.Must(t, json.Unmarshal(p.stdin, &config))
	maps.Copy(config, conf)
	stdin, err := json.Marshal(config)
	check.Must(t, err)
	return Pods{plugin: filepath.Join(p.binDir, fmt.Sprint(conf["type"])), binDir: p.binDir, stdin: stdin, host: host, netns: NetNSPath(pod)}
}

// Add runs an ADD for a pod and returns its addresses.
func (p Pods) Add(t testing.TB, id string) []string {
	t.Helper()
	ips, err := p.TryAdd(id)
	check.Must(t, err)
	return ips
}

// TryAdd is Add that returns the error, such as a full range.
func (p Pods) TryAdd(id string) ([]string, error) {
	out, err := p.Call("ADD", id, nil)
	if err != nil {
		return nil, err
	}
	var result struct{ IPs []struct{ Address string } }
	if err := json.Unmarshal(out, &result); err != nil {
		return nil, fmt.Errorf("result %s of a pod's ADD: %w", out, err)
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
	_, err := p.Call("DEL", id, nil)
	check.Must(t, err)
}

// Call runs a verb for a pod, with more keys in the configuration, and returns what the plugin prints.
func (p Pods) Call(verb, id string, keys map[string]any) ([]byte, error) {
	cmd, err := p.command(verb, id, keys)
	if err != nil {
		return nil, err
	}
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s of a pod: %w: %s", verb, err, out)
	}
	return out, nil
}

// Begin starts a verb for a pod. The function that it returns kills the plugin's process, as a runtime does
// that waits no longer; it must be called once.
func (p Pods) Begin(t testing.TB, verb, id string, keys map[string]any) (kill func()) {
	t.Helper()
	cmd, err := p.command(verb, id, keys)
	check.Must(t, err)
	check.Must(t, cmd.Start())
	return func() {
		t.Helper()
		check.Must(t, cmd.Process.Kill())
		_ = cmd.Wait() // killed
	}
}

// command returns the call of a verb for a pod.
func (p Pods) command(verb, id string, keys map[string]any) (*exec.Cmd, error) {
	config := map[string]any{}
	if err := json.Unmarshal(p.stdin, &config); err != nil {
		return nil, err
	}
	maps.Copy(config, keys)
	stdin, err := json.Marshal(config)
	if err != nil {
		return nil, err
	}
	netns := "/var/run/netns/" + id
	cmd := exec.Command(p.plugin)
	if p.host != "" {
		netns, cmd = p.netns, exec.Command("ip", "netns", "exec", p.host, p.plugin)
	}
	cmd.Stdin = bytes.NewReader(stdin)
	cmd.Env = []string{
		"CNI_COMMAND=" + verb, "CNI_CONTAINERID=" + id, "CNI_IFNAME=eth0", "CNI_NETNS=" + netns,
		"CNI_ARGS=IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=" + cmp.Or(p.Name, id), "CNI_PATH=" + p.binDir,
	}
	if dir := os.Getenv("GOCOVERDIR"); dir != "" {
		cmd.Env = append(cmd.Env, "GOCOVERDIR="+dir)
	}
	return cmd, nil
}

// NewNetNS creates a network namespace and returns its name, for IP and "ip netns exec"; NetNSPath
// returns its path. It is deleted with the test. Without the right to create one, the test is skipped.
func NewNetNS(t testing.TB) string {
	t.Helper()
	// Packages are tested concurrently: the name of a new directory is unique on the machine.
	name := filepath.Base(tempDir(t))
	if out, err := exec.Command("ip", "netns", "add", name).CombinedOutput(); err != nil {
		Skipf(t, "network namespaces cannot be created: %v: %s", err, out)
	}
	t.Cleanup(func() { IP(t, "netns", "del", name) })
	return name
}

// NetNSPath returns the path of a network namespace that NewNetNS has created.
func NetNSPath(name string) string { return filepath.Join("/run/netns", name) }

// IP runs ip(8), which must succeed.
func IP(t testing.TB, args ...string) {
	t.Helper()
	if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
		t.Errorf("ip %s: %v: %s", strings.Join(args, " "), err, out)
	}
}
