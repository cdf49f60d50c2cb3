package e2e

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

//evidence:design/reliability the old pod still runs while the new one starts
func TestSecondInstanceWaits(t *testing.T) {
	t.Parallel()
	n := nodeWith(t, harness.DualStack())
	first := n.Start(t)
	held := first.AllocateFor(t, "router")

	second := n.Launch(t)
	waitForLog(t, second, n.StateDir, strconv.Itoa(first.PID()))
	if !second.Running() {
		t.Fatalf("the second instance ended:\n%s", second.Log())
	}
	wantAddresses(t, first.AllocateFor(t, "router"), held)
	first.Stop(t)

	second.WaitReady(t)
	wantAddresses(t, second.AllocateFor(t, "router"), held)
	second.WaitConsistent(t)
}

func TestSecondSidecarOfNetwork(t *testing.T) {
	t.Parallel()
	n := nodeWith(t, harness.DualStack())
	first := n.Start(t)

	second := n.Launch(t, "--state-dir="+n.Dir+"/state2", "--socket-path="+n.Dir+"/ipam2.sock")
	wantStartFailure(t, second, n.Name, "pods")
	first.AllocateFor(t, "router")
}

func TestSocketInUse(t *testing.T) {
	t.Parallel()
	n := nodeWith(t, harness.DualStack())
	first := n.Start(t)
	other := nodeWith(t, harness.DualStack())

	second := other.Launch(t, "--socket-path="+n.Socket)
	wantStartFailure(t, second, n.Socket)
	first.AllocateFor(t, "router")
}

func TestSocketStale(t *testing.T) {
	t.Parallel()
	n := nodeWith(t, harness.DualStack())
	s := n.Start(t)
	s.Kill(t)
	if info, err := os.Lstat(n.Socket); err != nil || info.Mode().Type() != os.ModeSocket {
		t.Fatalf("after SIGKILL %s is %v, %v; want the socket left behind", n.Socket, info, err)
	}
	s = n.Start(t)
	s.AllocateFor(t, "router")
}

func TestSocketPathIsFile(t *testing.T) {
	t.Parallel()
	n := nodeWith(t, harness.DualStack())
	harness.Must(t, os.WriteFile(n.Socket, []byte("precious"), 0o600))
	wantStartFailure(t, n.Launch(t), n.Socket)
	if data, err := os.ReadFile(n.Socket); err != nil || string(data) != "precious" {
		t.Errorf("the file holds %q, %v; want it untouched", data, err)
	}
}

func TestSocketMode(t *testing.T) {
	t.Parallel()
	n := nodeWith(t, harness.DualStack())
	n.Start(t, "--socket-mode=0600")
	info, err := os.Lstat(n.Socket)
	harness.Must(t, err)
	if got := info.Mode().Perm(); got != 0o600 {
		t.Errorf("the socket's mode is %o; want 600", got)
	}
}

func TestHostHeader(t *testing.T) {
	t.Parallel()
	n := nodeWith(t, harness.DualStack())
	s := n.Start(t)
	for _, host := range []string{"localhost", "example.invalid:8080", "%2Fvar%2Frun%2Fipam.sock"} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://localhost/v1/ipam", http.NoBody)
		harness.Must(t, err)
		req.Host = host
		a, err := s.Send(req)
		if err != nil || a.Status != http.StatusOK {
			t.Errorf("Host %q was answered %s, %v; want 200", host, a, err)
		}
	}
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
		waitForLog(t, s, `request="POST /v1/ipam"`, fmt.Sprintf("owner=owner-%d ", i), "code=")
	}
	// Requests continue without their clients, and the stop waits for them.
	s.Stop(t)
	n.Start(t).WaitConsistent(t)
}

func TestStopKeepsLeases(t *testing.T) {
	eachNetwork(t, func(t *testing.T, n *harness.Node) {
		s := n.Start(t)
		held := s.AllocateFor(t, "router")
		s.Stop(t)
		wantLeaseCount(t, n, len(held))
		if _, err := os.Lstat(n.Socket); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("after SIGTERM the socket is still there: %v", err)
		}
	})
}

// allocateAndClose sends an allocate and closes the connection before the response.
func allocateAndClose(t *testing.T, socket, owner string) {
	t.Helper()
	conn, err := new(net.Dialer).DialContext(context.Background(), "unix", socket)
	harness.Must(t, err)
	defer conn.Close()
	if _, err := fmt.Fprintf(conn, "POST /v1/ipam?owner=%s HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n", owner); err != nil {
		t.Fatal(err)
	}
}

// wantStartFailure waits until the sidecar ends with a failure and has logged each text.
func wantStartFailure(t *testing.T, s *harness.Sidecar, texts ...string) {
	t.Helper()
	if code := s.Wait(t); code == 0 {
		t.Errorf("the sidecar ended with status 0; want a failure:\n%s", s.Log())
	}
	for _, text := range texts {
		if !strings.Contains(s.Log(), text) {
			t.Errorf("the log lacks %q:\n%s", text, s.Log())
		}
	}
}

// waitForLog waits until one line of the sidecar's log has every text.
func waitForLog(t *testing.T, s *harness.Sidecar, texts ...string) {
	t.Helper()
	harness.Eventually(t, fmt.Sprintf("a log line with %q", texts), func() error {
		for line := range strings.Lines(s.Log()) {
			lacks := func(text string) bool { return !strings.Contains(line, text) }
			if !slices.ContainsFunc(texts, lacks) {
				return nil
			}
		}
		return errors.New(s.Log())
	})
}
