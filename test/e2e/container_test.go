package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

// containerNode returns a node whose runtime calls host-local through the daemon.
func containerNode(t *testing.T) *harness.Node {
	t.Helper()
	n := harness.NewNode(t)
	writeContainers(t, n, map[string]any{"type": "host-local", "dataDir": n.StoreDir, "ranges": ranges()["ranges"]})
	return n
}

// scriptedContainers returns a node whose runtime calls the scripted plugin through the daemon.
func scriptedContainers(t *testing.T, keys map[string]any) (*harness.Node, harness.Scripted) {
	t.Helper()
	n := harness.NewNode(t)
	plugin := n.InstallScripted(t, "central")
	ipam := ranges()
	ipam["type"] = "central"
	maps.Copy(ipam, keys)
	writeContainers(t, n, ipam)
	return n, plugin
}

func writeContainers(t *testing.T, n *harness.Node, ipam map[string]any) {
	t.Helper()
	n.WriteNetwork(t, "05-cilium", harness.Network{Name: "pods", CNIVersion: "1.1.0", Plugin: "delegated-ipam-cni", IPAM: map[string]any{"delegate": ipam}})
	n.Flags = []string{"--enable-ipv6=false"}
}

// container is a container interface of the network "pods".
type container struct{ id, ifName string }

func (c container) request() map[string]any {
	return map[string]any{
		"network": "pods", "container-id": c.id, "ifname": c.ifName, "netns": "/var/run/netns/" + c.id,
		"args": "IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=" + c.id,
	}
}

func (c container) owner() string { return "cni/" + c.id + "/" + c.ifName }

// cni sends a request of delegated-ipam-cni.
func cni(t *testing.T, s *harness.Daemon, operation string, body map[string]any) harness.Response {
	t.Helper()
	response, err := s.Send(cniRequest(t, operation, body))
	check.Must(t, err)
	return response
}

func cniRequest(t *testing.T, operation string, body map[string]any) *http.Request {
	t.Helper()
	data, err := json.Marshal(body)
	check.Must(t, err)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://localhost/v1/cni/"+operation, bytes.NewReader(data))
	check.Must(t, err)
	request.Header.Set("Content-Type", "application/json")
	return request
}

// addContainer adds a container interface, which must succeed, and returns its addresses.
func addContainer(t *testing.T, s *harness.Daemon, c container) []string {
	t.Helper()
	response := cni(t, s, "add", c.request())
	response.WantStatus(t, http.StatusOK)
	var result struct{ IPs []struct{ Address string } }
	check.Must(t, json.Unmarshal(response.Body, &result))
	var ips []string
	for _, ip := range result.IPs {
		bare, _, _ := strings.Cut(ip.Address, "/")
		ips = append(ips, bare)
	}
	return ips
}

// wantLease wants the plugin's store to have an address for exactly this container interface.
func wantLease(t *testing.T, n *harness.Node, ip string, c container) {
	t.Helper()
	for _, l := range n.Leases(t) {
		if l.IP.String() == ip && l.ContainerID == c.id && l.Interface == c.ifName {
			return
		}
	}
	t.Errorf("the plugin's store has %v; want %s for %v", n.Leases(t), ip, c)
}

// The plugin's GC of a killed daemon does not know what the next one adds.
//
//evidence:design/reliability the plugin's GC outlives a killed daemon
func TestContainerGCOfKilledDaemon(t *testing.T) {
	t.Parallel()
	n, plugin := scriptedContainers(t, nil)
	s := n.Start(t)
	plugin.SetScript(t, "GC", `{"gate":"go-on"}`)
	request := cniRequest(t, "gc", map[string]any{"network": "pods", "valid-attachments": []any{}})
	go func() { _, _ = s.Send(request) }()
	plugin.WaitCall(t, "GC", 0)
	s.Kill(t)
	s = n.Start(t, "--plugin-timeout=1s") // the time that it gives the GC
	ip := addContainer(t, s, container{"new", "eth0"})
	plugin.Open(t, "go-on")
	harness.Eventually(t, "the end of the GC", func() error {
		all, err := filepath.Glob("/proc/[0-9]*/cmdline")
		for _, file := range all {
			if line, _ := os.ReadFile(file); strings.HasPrefix(string(line), n.BinDir) { // which fails if the process has ended
				err = errors.New(string(line))
			}
		}
		return err
	})
	wantAddresses(t, plugin.Holds(t), ip)
}

// The plugin gets what the runtime passed.
func TestContainerParameters(t *testing.T) {
	t.Parallel()
	n, plugin := scriptedContainers(t, nil)
	s := n.Start(t)
	request := container{"0a1b", "net1"}.request()
	request["args"] = "IgnoreUnknown=1;K8S_POD_NAME=p;K8S_POD_UID=12345678901234567890"
	request["cni-args"] = map[string]any{"cni": map[string]any{"labels": json.Number("12345678901234567890")}}
	request["runtime-config"] = map[string]any{"portMappings": []any{}}
	cni(t, s, "add", request).WantStatus(t, http.StatusOK)
	cni(t, s, "del", request).WantStatus(t, http.StatusOK)
	calls := plugin.Calls(t)
	for _, c := range calls[len(calls)-2:] {
		for name, want := range map[string]string{
			"CNI_CONTAINERID": "0a1b", "CNI_IFNAME": "net1", "CNI_NETNS": "/var/run/netns/0a1b",
			"CNI_ARGS": "IgnoreUnknown=1;K8S_POD_NAME=p;K8S_POD_UID=12345678901234567890;K8S_POD_INFRA_CONTAINER_ID=0a1b",
		} {
			if got := c.Env[name]; got != want {
				t.Errorf("%s had %s=%s; want %s", c.Verb, name, got, want)
			}
		}
		for _, want := range []string{`"args":{"cni":{"labels":12345678901234567890}}`, `"runtimeConfig":{"portMappings":[]}`, `"type":"central"`} {
			if !bytes.Contains(c.Stdin, []byte(want)) {
				t.Errorf("%s had the configuration %s; want %s in it", c.Verb, c.Stdin, want)
			}
		}
	}
}

func TestContainerRejected(t *testing.T) {
	t.Parallel()
	n := containerNode(t)
	s := n.Start(t)
	pod := container{"pod", "eth0"}
	addContainer(t, s, pod)
	s.TryAllocate(t, harness.Request{Owner: pod.owner()}).WantStatus(t, http.StatusForbidden)
	bad := pod.request()
	bad["network"] = "others"
	cni(t, s, "add", bad).WantError(t, http.StatusNotFound, "[pods]")
	bad = pod.request()
	bad["ifname"] = ".."
	cni(t, s, "add", bad).WantStatus(t, http.StatusBadRequest)
	bad["ifname"] = "a/b"
	cni(t, s, "add", bad).WantStatus(t, http.StatusUnprocessableEntity)
}

// Only the runtime knows whether a container runs.
func TestContainerCommands(t *testing.T) {
	t.Parallel()
	n := containerNode(t)
	s := n.Start(t)
	s.AllocateFor(t, "router")
	pod, other := container{"pod", "eth0"}, container{"other", "eth0"}
	ip := addContainer(t, s, pod)
	addContainer(t, s, other)
	wantCommand(t, n, command{line: "gc --older-than=1ns --yes"})
	wantNoAttachment(t, s, "router")
	s.AllocateFor(t, "router")
	wantCommand(t, n, command{line: "release --all --yes"})
	wantNoAttachment(t, s, "router")
	wantLease(t, n, ip[0], pod)
	wantCommand(t, n, command{line: "gc --owner=cni/pod/* --yes", stdout: ip[0]})
	wantNoAttachment(t, s, pod.owner())
	wantState(t, s, other.owner(), "held")
}

func TestContainerGCUnreadable(t *testing.T) {
	t.Parallel()
	n, plugin := scriptedContainers(t, nil)
	s := n.Start(t)
	router := s.AllocateFor(t, "router")
	s.Stop(t)
	n.DamageRecord(t, "default", "router")
	n.ResetHistory()
	s = n.Launch(t)
	s.WaitReady(t)
	cni(t, s, "gc", map[string]any{"network": "pods", "valid-attachments": []any{}}).WantError(t, http.StatusBadGateway, "quarantine/ has 1 files")
	wantAddresses(t, plugin.Holds(t), router)
}
