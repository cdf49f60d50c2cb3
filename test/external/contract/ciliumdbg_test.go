package contract

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

// envCiliumDbg has the path of the real cilium-dbg. It takes minutes to build, so only
// `make cilium-dbg-test` sets it.
const envCiliumDbg = "DELEGATED_IPAM_TEST_CILIUM_DBG"

func TestCiliumDbg(t *testing.T) {
	t.Parallel()
	program := os.Getenv(envCiliumDbg)
	if program == "" {
		t.Skipf("$%s is not set; make cilium-dbg-test builds cilium-dbg and sets it", envCiliumDbg)
	}
	tests := map[string]struct {
		start startFunc
		flags []string
		code  int
		want  string
	}{
		"ready":                   {routerHolds, nil, 0, "cilium-dbg-status-ready"},
		"ready, brief":            {routerHolds, []string{"--brief"}, 0, "cilium-dbg-status-ready-brief"},
		"ready, verbose":          {routerHolds, []string{"--verbose"}, 0, "cilium-dbg-status-ready-verbose"},
		"ready, JSON":             {routerHolds, []string{"-o", "json"}, 0, "cilium-dbg-status-ready-json"},
		"not ready":               {noConfiguration, nil, 1, "cilium-dbg-status-not-ready"},
		"not ready, brief":        {noConfiguration, []string{"--brief"}, 1, "cilium-dbg-status-not-ready-brief"},
		"plugin not ready, brief": {statusFails, []string{"--brief"}, 1, "cilium-dbg-status-waiting-brief"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n, _ := tt.start(t)
			cmd := exec.CommandContext(t.Context(), program, append([]string{"--host=unix://" + n.Socket, "status"}, tt.flags...)...)
			var stderr strings.Builder
			cmd.Stderr = &stderr
			out, err := cmd.Output()
			if code := cmd.ProcessState.ExitCode(); code != tt.code || stderr.Len() > 0 {
				t.Errorf("exit status %d (%v), stderr %q; want %d", code, err, &stderr, tt.code)
			}
			compareGolden(t, tt.want+".txt", replaceNode(n, string(out)))
		})
	}
}

// statusFails starts a daemon with a plugin whose STATUS fails.
func statusFails(t *testing.T) (*harness.Node, *harness.Daemon) {
	t.Helper()
	n := nodeWith(t, harness.Network{Name: "pods", CNIVersion: "1.1.0", Plugin: "scripted"})
	n.InstallScript(t, "scripted", strings.Replace(version, `"1.0.0"]`, `"1.0.0","1.1.0"]`, 1)+
		`echo '{"cniVersion":"1.1.0","code":50,"msg":"the datastore is away"}'; exit 1`)
	s := n.Launch(t)
	harness.Eventually(t, "the daemon to report the error of STATUS", func() error {
		if err := s.Ready(); err == nil || !strings.Contains(err.Error(), "the datastore is away") {
			return fmt.Errorf("it reports %v", err)
		}
		return nil
	})
	return n, s
}
