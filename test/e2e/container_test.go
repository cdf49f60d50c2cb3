package e2e

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
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
func scriptedContainers(t *testing.T) (*harness.Node, harness.Scripted) {
	t.Helper()
	n := harness.NewNode(t)
	plugin := n.InstallScripted(t, "central")
	ipam := ranges()
	ipam["type"] = "central"
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
	n, plugin := scriptedContainers(t)
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
	n, plugin := scriptedContainers(t)
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
	n, plugin := scriptedContainers(t)
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

// A configuration that host-local refuses in every verb leaves no record, which no DEL could remove.
//
//evidence:design/reliability an ADD whose configuration the plugin refuses in every verb
func TestContainerConfigRefused(t *testing.T) {
	t.Parallel()
	n := harness.NewNode(t)
	host := func(gateway string) map[string]any {
		return map[string]any{"type": "host-local", "dataDir": n.StoreDir, "ranges": [][]map[string]string{{{"subnet": "10.15.0.0/24", "gateway": gateway}}}}
	}
	writeContainers(t, n, host("10.99.0.1"))
	s := n.Launch(t)
	s.WaitServing(t)
	pod := container{"0a1b", "eth0"}
	for range 2 {
		cni(t, s, "add", pod.request()).WantError(t, http.StatusBadGateway, "10.99.0.1")
		wantNoAttachment(t, s, pod.owner())
	}
	writeContainers(t, n, host("10.15.0.1"))
	s.WaitReady(t)
	held := addContainer(t, s, pod)
	// CHECK and DEL run with the recorded configuration.
	writeContainers(t, n, host("10.99.0.1"))
	harness.Eventually(t, "the configuration to be read", func() error {
		if err := s.Ready(); err == nil {
			return errors.New("it is ready")
		}
		return nil
	})
	cni(t, s, "check", pod.request()).WantStatus(t, http.StatusOK)
	if again := addContainer(t, s, pod); again[0] != held[0] {
		t.Errorf("a repeated ADD returned %q; want %q", again, held)
	}
	cni(t, s, "del", pod.request()).WantStatus(t, http.StatusOK)
	wantNoAttachment(t, s, pod.owner())
	wantLeaseCount(t, n, 0)
}

// The log, the last error and errors about a container have the runtime's container ID: no other one is
// used for it.
func TestContainerIDOfRuntime(t *testing.T) {
	t.Parallel()
	n, plugin := scriptedContainers(t)
	s := n.Start(t, "--log-level=debug")
	failed, added := container{"5f1e", "eth0"}, container{"0a1b", "eth0"}
	plugin.SetScript(t, "ADD", `{"error":{"code":100,"msg":"no address left"}}`)
	cni(t, s, "add", failed.request()).WantError(t, http.StatusBadGateway, "no address left")
	plugin.ClearScript(t, "ADD")
	addContainer(t, s, added)
	cni(t, s, "del", added.request()).WantStatus(t, http.StatusOK)
	wantNoAttachment(t, s, added.owner())
	// Without a record.
	cni(t, s, "del", container{"77cc", "eth0"}.request()).WantStatus(t, http.StatusOK)
	// Released in the background.
	late := container{"3b3b", "eth0"}
	addContainer(t, s, late)
	plugin.SetScript(t, "DEL", `{"error":{"code":11,"msg":"locked"}}`)
	cni(t, s, "del", late.request()).WantError(t, http.StatusBadGateway, "locked")
	plugin.ClearScript(t, "DEL")
	waitReleased(t, s, late.owner())
	for line := range strings.Lines(s.Log()) {
		if strings.Contains(line, "cilium-agent-") {
			t.Errorf("the log has an ID that was not used: %s", line)
		}
	}
	for _, c := range []container{failed, added} {
		s.WaitLog(t, "containerID="+c.id, "owner="+c.owner())
	}
	if out := n.Command(t, "status", "-o=json"); strings.Contains(out.Stdout, "cilium-agent-") {
		t.Errorf("the status has an ID that was not used: %s", out.Stdout)
	}
}

// A user of --allow-uids may neither send the requests of a container runtime, nor allocate for containers
// or release their addresses.
func TestContainersOfCaller(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		harness.Skipf(t, "only root can connect as another user")
	}
	caller := harness.User{UID: 4242, GID: 4242}
	n := containerNode(t)
	check.Must(t, os.Chmod(n.Dir, 0o711)) // search permission for the socket
	s := n.Start(t, "--socket-mode=0666", "--allow-uids=4242")
	pod := container{"pod", "eth0"}
	ip := addContainer(t, s, pod)[0]
	before := n.Snapshot(t)
	for operation, body := range map[string]map[string]any{
		"add": container{"other", "eth0"}.request(), "del": pod.request(), "check": pod.request(),
		"gc":        {"network": "pods", "valid-attachments": []any{}},
		"sandboxes": {"runtime": "containerd v2.4.2", "sandboxes": []string{"other"}},
	} {
		cniAs(t, s, caller, operation, body).WantError(t, http.StatusForbidden, "only root")
	}
	s.DoAs(t, caller, http.MethodDelete, "/v1/ipam/"+ip).WantError(t, http.StatusForbidden)
	for _, path := range []string{"?owner=" + pod.owner(), "?owner=cni/other/eth0", "/" + ip + "?owner=" + pod.owner(), "/10.15.0.77?owner=cni/other/eth0"} {
		s.DoAs(t, caller, http.MethodPost, "/v1/ipam"+path).WantError(t, http.StatusForbidden)
	}
	before.WantSame(t, n.Snapshot(t))
	wantState(t, s, pod.owner(), "held")
	s.DoAs(t, caller, http.MethodPost, "/v1/ipam?owner=router").WantStatus(t, http.StatusCreated)
}

// cniAs is cni of another user.
func cniAs(t *testing.T, s *harness.Daemon, user harness.User, operation string, body map[string]any) harness.Response {
	t.Helper()
	conn, err := s.DialAs(user)
	check.Must(t, err)
	defer conn.Close()
	request := cniRequest(t, operation, body)
	check.Must(t, request.Write(conn))
	response, err := http.ReadResponse(bufio.NewReader(conn), request)
	check.Must(t, err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	check.Must(t, err)
	return harness.Response{Status: response.StatusCode, Header: response.Header, Body: text}
}

// A container with the ID of an owner changes nothing: the plugin's DEL would release the owner's address.
//
//evidence:operate/security two owners with one container ID, or a container with that of an owner
func TestContainerIDOfOwner(t *testing.T) {
	t.Parallel()
	n := containerNode(t)
	s := n.Start(t)
	held := s.AllocateFor(t, "router")
	before := n.Snapshot(t)
	for _, operation := range []string{"add", "del", "check"} {
		request := container{s.Attachment(t, "router").ContainerID, "eth0"}.request()
		cni(t, s, operation, request).WantError(t, http.StatusForbidden, "one of the daemon's own")
	}
	before.WantSame(t, n.Snapshot(t))
	check.Equal(t, "router's addresses", s.AllocateFor(t, "router"), held)
}
