package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

//evidence:design/reliability the old pod still runs while the new one starts
func TestSecondInstanceWaits(t *testing.T) {
	t.Parallel()
	// In a pod each daemon has PID 1 and the host name of the node, so both locks name the pod.
	const pod = "pod kube-system/delegated-ipam-x7k2p since 20"
	n := nodeWith(t, harness.DualStack())
	n.Env = append(n.Env, "K8S_POD_NAME=kube-system/delegated-ipam-x7k2p")
	first := n.Start(t)
	first.WaitLog(t, "podName=kube-system/delegated-ipam-x7k2p")
	held := first.AllocateFor(t, "router")
	doctorWithOptions(t, n, nil, "--socket-path="+n.Socket+"2", "--state-dir="+n.StateDir+"2").
		wantProblems(t, []string{"error daemon", "error plugin"}, pod, n.StateDir)

	waiting := *n
	waiting.Socket += "2"
	second := waiting.Launch(t)
	second.WaitLog(t, "waiting for the state directory", n.StateDir, "another process holds: "+pod, strconv.Itoa(first.PID()))
	for _, kind := range []string{"startup", "ready", "live"} {
		wantProbe(t, &waiting, kind, waiting.Socket)
	}
	wantAddresses(t, first.AllocateFor(t, "router"), held)
	first.Stop(t)

	second.WaitReady(t)
	wantAddresses(t, second.AllocateFor(t, "router"), held)
	second.WaitConsistent(t)
}

func TestClientDisconnects(t *testing.T) {
	t.Parallel()
	n := nodeWith(t, harness.DualStack())
	s := n.Start(t)
	const clients = 20
	for i := range clients {
		allocateAndClose(t, n.Socket, fmt.Sprintf("owner-%d", i))
	}
	for i := range clients {
		s.WaitLog(t, `request="POST /v1/ipam"`, fmt.Sprintf("owner=owner-%d ", i), "code=")
	}
	// Requests continue without their clients, and the stop waits for them.
	s.Stop(t)
	n.Start(t).WaitConsistent(t)
}

// allocateAndClose sends an allocate and closes the connection before the response.
func allocateAndClose(t *testing.T, socket, owner string) {
	t.Helper()
	conn, err := new(net.Dialer).DialContext(context.Background(), "unix", socket)
	check.Must(t, err)
	defer conn.Close()
	if _, err := fmt.Fprintf(conn, "POST /v1/ipam?owner=%s HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n", owner); err != nil {
		t.Fatal(err)
	}
}

// As a container of the manifests: root without capabilities, in one supplementary group.
func TestSocketGroupWithoutCapabilities(t *testing.T) {
	t.Parallel()
	n := nodeWith(t, harness.DualStack())
	setpriv, err := exec.LookPath("setpriv")
	if err != nil || os.Geteuid() != 0 {
		harness.Skipf(t, "root and setpriv (util-linux) are needed to drop capabilities: %v", err)
	}
	n.Wrapper = []string{setpriv, "--bounding-set=-all", "--inh-caps=-all", "--groups=60914", "--"}

	refused := n.Launch(t, "--socket-group=60915")
	refused.WantStartFailure(t, "60915", "not a member", "CAP_CHOWN", "supplementalGroups", "runAsGroup", "SupplementaryGroups=")

	s := n.Start(t, "--socket-group=60914")
	var stat unix.Stat_t
	if err := unix.Lstat(n.Socket, &stat); err != nil || stat.Gid != 60914 {
		t.Errorf("the group of the socket is %d, %v; want 60914", stat.Gid, err)
	}
	s.AllocateFor(t, "router")
	if got := n.Command(t, "doctor"); strings.Contains(got.Stdout, "cannot be set") {
		t.Errorf("doctor of a running daemon:\n%s", got.Stdout)
	}
}

func TestRestart(t *testing.T) {
	const owners = 10
	for name, end := range map[string]func(*harness.Daemon, testing.TB){"SIGTERM": (*harness.Daemon).Stop, "SIGKILL": (*harness.Daemon).Kill} {
		t.Run(name, func(t *testing.T) {
			eachNetwork(t, func(t *testing.T, n *harness.Node) {
				s := n.Start(t)
				before := allocateConcurrently(t, s, owners)
				leases := n.Leases(t)
				end(s, t)

				s = n.Start(t)
				if now := harness.Leases(s.List(t)); len(now) != len(leases) {
					t.Errorf("after the restart the list has %v; want the same %d addresses", now, len(leases))
				}
				for i, after := range allocateConcurrently(t, s, owners) {
					wantAddresses(t, after, before[i])
				}
				if now := n.Leases(t); !slices.Equal(now, leases) {
					t.Errorf("the plugin's store was %v and is %v; want no change", leases, now)
				}
			})
		})
	}
}

// allocateConcurrently allocates for that many owners concurrently and returns the addresses of each.
func allocateConcurrently(t *testing.T, s *harness.Daemon, owners int) [][]string {
	t.Helper()
	requests := make([]harness.Request, owners)
	for i := range requests {
		requests[i].Owner = fmt.Sprintf("kube-system/pod-%d", i)
	}
	all := make([][]string, owners)
	for i, a := range s.AllocateConcurrently(t, requests) {
		all[i] = a.Allocation(t).Addresses()
	}
	return all
}

func asJSON(t *testing.T, v any) string {
	t.Helper()
	data, err := json.Marshal(v)
	check.Must(t, err)
	return string(data)
}
