package e2e

import (
	"net/http"
	"os"
	"syscall"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

// waitingHostLocal is the real host-local whose ADD creates "$0.begun" and waits for "$0.go".
const waitingHostLocal = `#!/bin/sh
if [ "$CNI_COMMAND" = ADD ]; then
	: >"$0.begun"
	until [ -e "$0.go" ]; do sleep 0.02; done
fi
exec "$0.real"
`

func TestStopWaitsForPlugin(t *testing.T) {
	t.Parallel()
	n := nodeWith(t, harness.IPv4Only())
	plugin := n.WrapPlugin(t, "host-local", waitingHostLocal)
	s := n.Launch(t, "--plugin-timeout=10m")
	s.WaitReady(t)

	answered := make(chan harness.Response, 1)
	go func() {
		a, err := s.Try(http.MethodPost, "/v1/ipam?owner=running")
		if err != nil {
			a = harness.Response{Body: []byte(err.Error())}
		}
		answered <- a
	}()
	harness.Eventually(t, "the ADD to start", func() error {
		_, err := os.Stat(plugin + ".begun")
		return err
	})
	harness.Must(t, syscall.Kill(s.PID(), syscall.SIGTERM))
	waitForLog(t, s, "Stopping")
	if !s.Running() {
		t.Fatal("the sidecar ended before the plugin call")
	}
	harness.Must(t, os.WriteFile(plugin+".go", nil, 0o600))
	if a := <-answered; a.Status != http.StatusCreated {
		t.Errorf("the request was answered %s; want 201", a)
	}
	if code := s.Wait(t); code != 0 {
		t.Errorf("the sidecar ended with status %d; want 0", code)
	}
	wantState(t, n.Start(t), "running", "held")
}
