package contract

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

// envCiliumDbg names the real cilium-dbg. It takes minutes to build, so only
// `make test-cilium-dbg` does.
const envCiliumDbg = "DELEGATED_IPAM_TEST_CILIUM_DBG"

func TestCiliumDbgPrintsASensiblePage(t *testing.T) {
	t.Parallel()
	program := os.Getenv(envCiliumDbg)
	if program == "" {
		t.Skipf("$%s names no cilium-dbg; make test-cilium-dbg builds it and sets it", envCiliumDbg)
	}
	tests := map[string]struct {
		scene scene
		flags []string
		code  int
		page  string
	}{
		"ready":               {routerHolds, nil, 0, "cilium-dbg-status-ready"},
		"ready, in brief":     {routerHolds, []string{"--brief"}, 0, "cilium-dbg-status-ready-brief"},
		"ready, in full":      {routerHolds, []string{"--verbose"}, 0, "cilium-dbg-status-ready-verbose"},
		"ready, as JSON":      {routerHolds, []string{"-o", "json"}, 0, "cilium-dbg-status-ready-json"},
		"not ready":           {noConfiguration, nil, 1, "cilium-dbg-status-not-ready"},
		"not ready, in brief": {noConfiguration, []string{"--brief"}, 1, "cilium-dbg-status-not-ready-brief"},
		"waiting, in brief":   {withoutService, []string{"--brief"}, 1, "cilium-dbg-status-waiting-brief"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n, _ := tt.scene(t)
			cmd := exec.CommandContext(t.Context(), program, append([]string{"--host=unix://" + n.Socket, "status"}, tt.flags...)...)
			out, err := cmd.Output()
			var exit *exec.ExitError
			if err != nil && !errors.As(err, &exit) {
				t.Fatal(err)
			}
			if code := cmd.ProcessState.ExitCode(); code != tt.code {
				t.Errorf("it ended with status %d; want %d", code, tt.code)
			}
			if exit != nil && len(exit.Stderr) > 0 {
				t.Errorf("it said to stderr: %s", exit.Stderr)
			}
			sameAsGolden(t, filepath.Join("testdata", tt.page+".txt"), named(n, string(out)))
		})
	}
}

// withoutService has a plugin that says by STATUS that it cannot serve.
func withoutService(t *testing.T) (*harness.Node, *harness.Sidecar) {
	t.Helper()
	n := nodeWith(t, harness.Network{Name: "pods", CNIVersion: "1.1.0", Plugin: "scripted"})
	n.InstallScript(t, "scripted", strings.Replace(version, `"1.0.0"]`, `"1.0.0","1.1.0"]`, 1)+
		`echo '{"cniVersion":"1.1.0","code":50,"msg":"the datastore is away"}'; exit 1`)
	s := n.Launch(t)
	harness.Eventually(t, "it to say that it waits", func() error {
		if err := s.Ready(); err == nil || !strings.Contains(err.Error(), "the datastore is away") {
			return fmt.Errorf("it says %v", err)
		}
		return nil
	})
	return n, s
}
