package e2e

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

// wantProbes waits until the startup and live probes succeed, and the ready probe succeeds or
// fails with the text notReady.
func wantProbes(t *testing.T, n *harness.Node, notReady string) {
	t.Helper()
	wantProbe(t, n, "startup", "")
	wantProbe(t, n, "live", "")
	wantProbe(t, n, "ready", notReady)
}

// wantProbe waits until a probe succeeds, or (unless failure is empty) fails with that text.
func wantProbe(t *testing.T, n *harness.Node, kind, failure string) {
	t.Helper()
	harness.Eventually(t, "probe "+kind, func() error {
		out := n.Command(t, "probe", kind, "--timeout=2s")
		succeeded := out.ExitCode == 0 && out.Stdout == "" && out.Stderr == ""
		failed := out.ExitCode == 1 && out.Stdout == "" && strings.Count(out.Stderr, "\n") == 1 && strings.Contains(out.Stderr, failure)
		if (failure == "") != succeeded || (failure != "") != failed {
			return fmt.Errorf("the probe ended with %+v; want failure %q", out, failure)
		}
		return nil
	})
}

func TestProbesSTATUSFails(t *testing.T) {
	t.Parallel()
	n, plugin := scriptedNode(t, "scripted", nil)
	plugin.SetScript(t, "STATUS", `{"error":{"cniVersion":"1.1.0","code":50,"msg":"the datastore is away"}}`)
	s := n.Launch(t, "--enable-ipv6=false")
	wantProbes(t, n, "code 50): the datastore is away")
	plugin.ClearScript(t, "STATUS")
	s.WaitReady(t)
}

// hang makes a call wait until Open("go-on").
const hang = `{"gate":"go-on"}`

func emptyDir(t *testing.T, dir string) {
	t.Helper()
	check.Must(t, os.RemoveAll(dir))
	check.Must(t, os.Mkdir(dir, 0o755))
}

// A stop waits for the running plugin call, whose address is held after the next start.
func TestProbesWhileStopping(t *testing.T) {
	t.Parallel()
	n, plugin := scriptedNode(t, "scripted", nil)
	n.Flags = []string{"--enable-ipv6=false", "--plugin-timeout=10m"}
	s := n.Launch(t)
	s.WaitReady(t)
	plugin.SetScript(t, "ADD", hang)
	answered := make(chan harness.Response, 1)
	go func() {
		response, _ := s.Try(http.MethodPost, "/v1/ipam?owner=router")
		answered <- response
	}()
	plugin.WaitCall(t, "ADD", 0)
	s.Signal(t, syscall.SIGTERM)
	wantProbes(t, n, "the service is stopping")
	plugin.Open(t, "go-on")
	(<-answered).WantStatus(t, http.StatusCreated)
	if code := s.Wait(t); code != 0 {
		t.Errorf("the daemon ended with status %d; want 0", code)
	}
	wantProbe(t, n, "live", n.Socket)
	wantState(t, n.Start(t), "router", "held")
}

func TestProbesInOtherPIDNamespace(t *testing.T) {
	t.Parallel()
	if out, err := exec.Command("unshare", "--pid", "--fork", "true").CombinedOutput(); err != nil {
		harness.Skipf(t, "PID namespaces cannot be created: %v: %s", err, out)
	}
	n := nodeWith(t, harness.DualStack())
	n.Start(t)
	for kind, want := range map[string]int{"startup": 1, "ready": 1, "live": 0} {
		cmd := exec.Command("unshare", "--pid", "--fork", harness.Binary(t), "probe", kind, "--timeout=30s", "--host="+n.Socket)
		cmd.Env = append(os.Environ(), "GORACE=atexit_sleep_ms=0")
		out, _ := cmd.CombinedOutput()
		if got := cmd.ProcessState.ExitCode(); got != want || (want == 1) != strings.Contains(string(out), "another PID namespace") {
			t.Errorf("probe %s ended with %d and printed %q; want %d", kind, got, out, want)
		}
	}
}
