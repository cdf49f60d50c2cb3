package e2e

import (
	"context"
	"errors"
	"fmt"
	"net"
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

	waiting := *n
	waiting.Socket += "2"
	second := waiting.Launch(t)
	waitForLog(t, second, "waiting for the state directory", n.StateDir, strconv.Itoa(first.PID()))
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
		waitForLog(t, s, `request="POST /v1/ipam"`, fmt.Sprintf("owner=owner-%d ", i), "code=")
	}
	// Requests continue without their clients, and the stop waits for them.
	s.Stop(t)
	n.Start(t).WaitConsistent(t)
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
