package e2e

import (
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

// waitingHostLocal is the real host-local whose ADD says that it has begun, and
// waits until it may go on.
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
	plugin := filepath.Join(n.BinDir, "host-local")
	harness.Must(t, os.Rename(plugin, plugin+".real"))
	n.InstallScript(t, "host-local", waitingHostLocal)
	s := n.Launch(t)
	s.WaitReady(t)

	answered := make(chan harness.Response, 1)
	go func() {
		a, err := s.Try(http.MethodPost, "/v1/ipam?owner=running")
		if err != nil {
			a = harness.Response{Body: []byte(err.Error())}
		}
		answered <- a
	}()
	harness.Eventually(t, "the ADD to begin", func() error {
		_, err := os.Stat(plugin + ".begun")
		return err
	})
	harness.Must(t, syscall.Kill(s.PID(), syscall.SIGTERM))
	harness.Eventually(t, "it to stop", func() error {
		if !strings.Contains(s.Log(), "Stopping") {
			return errors.New("it has not said so")
		}
		return nil
	})
	if !s.Running() {
		t.Fatal("it ended while the plugin call still ran")
	}
	harness.Must(t, os.WriteFile(plugin+".go", nil, 0o600))
	if a := <-answered; a.Status != http.StatusCreated {
		t.Errorf("the request that ran is answered %s; want 201", a)
	}
	if code := s.Wait(t); code != 0 {
		t.Errorf("it ended with status %d; want 0", code)
	}
	again := n.Start(t)
	if a := again.Attachment(t, "running"); a == nil || a.State != "held" {
		t.Errorf("after the next start: %+v; want it held", a)
	}
}
