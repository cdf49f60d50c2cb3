package e2e

import (
	"bufio"
	"io"
	"net/http"
	"os"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

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
