package e2e

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

// longTimeout is for probes of a machine that runs many tests at once: what they
// answer is asked here, not how soon.
const longTimeout = "--timeout=30s"

// wantProbes asks all three probes until they are as wanted: startup and live 0, and
// ready 0, or 1 in words that say why.
func wantProbes(t *testing.T, n *harness.Node, notReady string) {
	t.Helper()
	wantProbe(t, n, "startup", "")
	wantProbe(t, n, "live", "")
	wantProbe(t, n, "ready", notReady)
}

func wantProbe(t *testing.T, n *harness.Node, kind, whyNot string) {
	t.Helper()
	harness.Eventually(t, "probe "+kind, func() error {
		out := n.Command(t, "probe", kind, longTimeout)
		yes := out.ExitCode == 0 && out.Stdout == "" && out.Stderr == ""
		no := out.ExitCode == 1 && out.Stdout == "" && strings.Count(out.Stderr, "\n") == 1 && strings.Contains(out.Stderr, whyNot)
		if (whyNot == "") != yes || (whyNot != "") != no {
			return fmt.Errorf("it ended with %+v; want no to say %q", out, whyNot)
		}
		return nil
	})
}

func TestProbesReady(t *testing.T) {
	t.Parallel()
	n := nodeWith(t, harness.DualStack())
	n.Start(t)
	wantProbes(t, n, "")
}

func TestProbesNotReady(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		spoil func(t *testing.T, n *harness.Node, plugin harness.Scripted)
		says  string
	}{
		"no CNI configuration": {
			func(t *testing.T, n *harness.Node, _ harness.Scripted) { emptyDir(t, n.ConfDir) }, "no CNI configuration",
		},
		"a CNI configuration that is cut off": {
			func(t *testing.T, n *harness.Node, _ harness.Scripted) {
				n.WriteConf(t, "05-cilium.conflist", []byte(`{"name": "pods", "plugins": [`))
			}, "05-cilium.conflist",
		},
		"no plugin": {
			func(t *testing.T, n *harness.Node, _ harness.Scripted) { emptyDir(t, n.BinDir) }, "failed to find plugin",
		},
		"a plugin that says by STATUS that it cannot serve at all": {
			func(t *testing.T, _ *harness.Node, plugin harness.Scripted) {
				plugin.SetScript(t, "STATUS", `{"error":{"cniVersion":"1.1.0","code":50,"msg":"the datastore is away"}}`)
			}, "code 50): the datastore is away",
		},
		"a plugin that says by STATUS that it can serve no new ones": {
			func(t *testing.T, _ *harness.Node, plugin harness.Scripted) {
				plugin.SetScript(t, "STATUS", `{"error":{"cniVersion":"1.1.0","code":51,"msg":"no address is left"}}`)
			}, "code 51): no address is left",
		},
		"a plugin that hangs in STATUS": {
			func(t *testing.T, _ *harness.Node, plugin harness.Scripted) { hangUntilEnd(t, plugin, "STATUS") }, "does not answer",
		},
		"a plugin that hangs in VERSION": {
			func(t *testing.T, _ *harness.Node, plugin harness.Scripted) { hangUntilEnd(t, plugin, "VERSION") }, "does not answer",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n, plugin := scriptedNode(t, "scripted", ranges())
			tt.spoil(t, n, plugin)
			n.Launch(t, "--enable-ipv6=false")
			wantProbes(t, n, tt.says)
		})
	}
}

// hangUntilEnd lets a verb wait until the test ends.
func hangUntilEnd(t *testing.T, plugin harness.Scripted, verb string) {
	t.Helper()
	plugin.SetScript(t, verb, `{"gate":"go-on"}`)
	t.Cleanup(func() { plugin.Open(t, "go-on") })
}

func emptyDir(t *testing.T, dir string) {
	t.Helper()
	harness.Must(t, os.RemoveAll(dir))
	harness.Must(t, os.Mkdir(dir, 0o755))
}

func TestProbesWhilePluginHangs(t *testing.T) {
	t.Parallel()
	n, plugin := scriptedNode(t, "scripted", ranges())
	s := n.Launch(t, "--enable-ipv6=false", "--max-plugin-processes=1", "--max-queued-requests=3")
	s.WaitReady(t)
	hangUntilEnd(t, plugin, "STATUS")
	plugin.SetScript(t, "ADD", `{"gate":"go-on"}`)
	answered := make(chan struct{})
	for i := range 5 { // more than there is room for
		go func() {
			_, _ = s.Try(http.MethodPost, fmt.Sprintf("/v1/ipam?owner=pod-%d", i))
			answered <- struct{}{}
		}()
	}
	for range 2 { // those that found no room
		<-answered
	}
	wantProbe(t, n, "startup", "")
	wantProbe(t, n, "live", "")
	plugin.Open(t, "go-on")
	for range 3 {
		<-answered
	}
}

func TestProbesStateDirMissing(t *testing.T) {
	t.Parallel()
	n := nodeWith(t, harness.DualStack())
	n.Start(t)
	harness.Must(t, os.Rename(n.StateDir, n.StateDir+".away"))
	wantProbes(t, n, "the state folder cannot be written")
	harness.Must(t, os.Rename(n.StateDir+".away", n.StateDir))
	wantProbes(t, n, "")
}

func TestProbesWhileStopping(t *testing.T) {
	t.Parallel()
	n, plugin := scriptedNode(t, "scripted", ranges())
	s := n.Launch(t, "--enable-ipv6=false")
	s.WaitReady(t)
	plugin.SetScript(t, "ADD", `{"gate":"go-on"}`)
	answered := make(chan struct{})
	go func() {
		_, _ = s.Try(http.MethodPost, "/v1/ipam?owner=router")
		close(answered)
	}()
	harness.Eventually(t, "the ADD to begin", func() error {
		if plugin.CallCount(t, "ADD") == 0 {
			return fmt.Errorf("it has not")
		}
		return nil
	})
	harness.Must(t, syscall.Kill(s.PID(), syscall.SIGTERM))
	wantProbes(t, n, "the service is stopping")
	plugin.Open(t, "go-on")
	<-answered
	if code := s.Wait(t); code != 0 {
		t.Errorf("it ended with status %d; want 0", code)
	}
	wantProbe(t, n, "live", n.Socket)
}

// A rolling update overlaps: the new instance waits for the state folder, while
// the old one answers on the same path.
func TestProbesWhileWaiting(t *testing.T) {
	t.Parallel()
	n := nodeWith(t, harness.DualStack())
	n.Start(t)
	waiting := *n
	waiting.Socket = n.Socket + "2"
	second := waiting.Launch(t)
	harness.Eventually(t, "the second one to wait", func() error {
		if !strings.Contains(second.Log(), "waiting for the state folder") {
			return fmt.Errorf("it has not said so")
		}
		return nil
	})
	for _, kind := range []string{"startup", "ready", "live"} {
		wantProbe(t, &waiting, kind, waiting.Socket)
	}
}

func TestProbesInOtherPIDNamespace(t *testing.T) {
	t.Parallel()
	if out, err := exec.Command("unshare", "--pid", "--fork", "true").CombinedOutput(); err != nil {
		harness.Skipf(t, "no PID namespace can be made: %v: %s", err, out)
	}
	n := nodeWith(t, harness.DualStack())
	n.Start(t)
	for kind, want := range map[string]int{"startup": 1, "ready": 1, "live": 0} {
		cmd := exec.Command("unshare", "--pid", "--fork", harness.Binary(t), "probe", kind, longTimeout, "--host="+n.Socket)
		cmd.Env = append(os.Environ(), "GORACE=atexit_sleep_ms=0")
		out, _ := cmd.CombinedOutput()
		if got := cmd.ProcessState.ExitCode(); got != want || (want == 1) != strings.Contains(string(out), "another PID namespace") {
			t.Errorf("probe %s ended with %d and said %q; want %d", kind, got, out, want)
		}
	}
}
