package cli

import (
	"path/filepath"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/cmd/internal/cmdline"
	"github.com/delegated-ipam/delegated-ipam/internal/options"
)

// Responses of a daemon to its probes.
const (
	isReady  = `{"cilium":{"state":"Ok","msg":"v1.2.3"}}`
	notReady = `{"cilium":{"state":"Failure","msg":"v1.2.3    not ready: pool \"default\" has no\nCNI configuration"}}`
)

func TestProbe(t *testing.T) {
	for name, tt := range map[string]struct {
		kind     string
		response map[string][]response
		code     int
		stderr   string
	}{
		"startup":              {"startup", map[string][]response{"GET /v1/config": {jsonResponse(200, `{}`)}}, cmdline.ExitOK, ""},
		"startup, forbidden":   {"startup", map[string][]response{"GET /v1/config": {{code: 403}}}, cmdline.ExitOK, ""},
		"live":                 {"live", map[string][]response{"GET /v1/config": {jsonResponse(200, `{}`)}}, cmdline.ExitOK, ""},
		"live, internal error": {"live", map[string][]response{"GET /v1/config": {{code: 500}}}, cmdline.ExitOK, ""},
		"ready":                {"ready", map[string][]response{"GET /v1/healthz": {jsonResponse(200, isReady)}}, cmdline.ExitOK, ""},
		"not ready":            {"ready", map[string][]response{"GET /v1/healthz": {jsonResponse(200, notReady)}}, cmdline.ExitFailed, "Error: probe ready: daemon v1.2.3 not ready: pool \"default\" has no CNI configuration\n"},
		"ready, panic":         {"ready", map[string][]response{"GET /v1/healthz": {{code: 500, contentType: "text/plain", body: "oops"}}}, cmdline.ExitFailed, ""},
		"ready, no state":      {"ready", map[string][]response{"GET /v1/healthz": {jsonResponse(200, `{}`)}}, cmdline.ExitFailed, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := startDaemon(t, tt.response)
			o := s.dependencies().exec(t, "probe", tt.kind, "--timeout=1m")
			if o.code != tt.code || o.stdout != "" {
				t.Errorf("exit code %d, stdout %q; want %d and nothing", o.code, o.stdout, tt.code)
			}
			if tt.kind == "ready" {
				s.wantRequests(t, "GET /v1/healthz brief=true")
			}
			if tt.stderr != "" && o.stderr != tt.stderr || (o.code == cmdline.ExitOK) != (o.stderr == "") {
				t.Errorf("stderr %q; want %q", o.stderr, tt.stderr)
			}
		})
	}
}

func TestProbeNoDaemon(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "none.sock")
	for _, kind := range []string{"startup", "ready", "live"} {
		testDependencies(map[string]string{options.SocketEnv: socket}).exec(t, "probe", kind).
			wants(t, cmdline.ExitFailed, "", "probe "+kind+": no daemon can be reached at "+socket+": no such file or directory; start delegated-ipam")
	}
}

func TestProbeTimeout(t *testing.T) {
	socket, _ := silentServer(t)
	for _, kind := range []string{"startup", "ready", "live"} {
		testDependencies(nil).exec(t, "probe", kind, "--host="+socket, "--timeout=20ms").
			wants(t, cmdline.ExitFailed, "", "probe "+kind, "no answer from the daemon at "+socket+" within 20ms")
	}
}
