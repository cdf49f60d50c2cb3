package e2e

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"testing"

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
