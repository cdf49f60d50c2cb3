package cli

import (
	"path/filepath"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/pkg/option"
)

// Answers of a sidecar to its probes.
const (
	isReady  = `{"cilium":{"state":"Ok","msg":"v1.2.3"}}`
	notReady = `{"cilium":{"state":"Failure","msg":"v1.2.3    not ready: pool \"default\" has no\nCNI configuration"}}`
)

func TestAProbeIsSilentForYesAndSaysInOneLineWhyNot(t *testing.T) {
	tests := map[string]struct {
		kind   string
		answer map[string][]answer
		code   int
		stderr string
	}{
		"started":                     {"startup", map[string][]answer{"GET /v1/config": {jsonAnswer(200, `{}`)}}, option.Done, ""},
		"started, whoever may call":   {"startup", map[string][]answer{"GET /v1/config": {{code: 403}}}, option.Done, ""},
		"alive":                       {"live", map[string][]answer{"GET /v1/config": {jsonAnswer(200, `{}`)}}, option.Done, ""},
		"alive, even if it panicked":  {"live", map[string][]answer{"GET /v1/config": {{code: 500}}}, option.Done, ""},
		"ready":                       {"ready", map[string][]answer{"GET /v1/healthz": {jsonAnswer(200, isReady)}}, option.Done, ""},
		"not ready":                   {"ready", map[string][]answer{"GET /v1/healthz": {jsonAnswer(200, notReady)}}, option.Failed, "Error: probe ready: sidecar v1.2.3 not ready: pool \"default\" has no CNI configuration\n"},
		"ready, but a panic says no":  {"ready", map[string][]answer{"GET /v1/healthz": {{500, "text/plain", "", "oops"}}}, option.Failed, ""},
		"ready, but of something odd": {"ready", map[string][]answer{"GET /v1/healthz": {jsonAnswer(200, `{}`)}}, option.Failed, ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			s := startSidecar(t, tt.answer)
			o := s.program().runHere(t, "probe", tt.kind)
			if o.code != tt.code || o.stdout != "" {
				t.Errorf("ended with status %d and printed %q; want %d and nothing", o.code, o.stdout, tt.code)
			}
			if tt.stderr != "" && o.stderr != tt.stderr || (o.code == option.Done) != (o.stderr == "") {
				t.Errorf("said %q; want %q", o.stderr, tt.stderr)
			}
		})
	}
}

func TestAProbeAsksBrieflyAndOnce(t *testing.T) {
	s := startSidecar(t, map[string][]answer{"GET /v1/healthz": {jsonAnswer(200, isReady)}})
	s.program().runHere(t, "probe", "ready").wants(t, option.Done, "")
	if got := s.requests(); len(got) != 1 || got[0] != "GET /v1/healthz brief=true" {
		t.Errorf("it asked %q; want the brief status once", got)
	}
}

func TestAProbeOfNobodyIsNo(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "none.sock")
	for _, kind := range []string{"startup", "ready", "live"} {
		testProgram(map[string]string{option.SocketEnv: socket}).runHere(t, "probe", kind).
			wants(t, option.Failed, "", "probe "+kind, socket, "no such file")
	}
}

func TestAProbeGivesUpInTime(t *testing.T) {
	socket, _ := silence(t)
	for _, kind := range []string{"startup", "ready", "live"} {
		testProgram(nil).runHere(t, "probe", kind, "--host="+socket, "--timeout=20ms").
			wants(t, option.Failed, "", "probe "+kind, socket, "no answer within 20ms")
	}
}

func TestAProbeOfAnUnknownKindIsWrongUsage(t *testing.T) {
	for name, tt := range map[string]struct {
		args []string
		says string
	}{
		"an unknown one":      {[]string{"probe", "healthy"}, `"healthy"`},
		"none":                {[]string{"probe"}, "expected one of startup, ready, live"},
		"two":                 {[]string{"probe", "live", "ready"}, "2 arguments"},
		"without any time":    {[]string{"probe", "live", "--timeout=0s"}, "--timeout is 0s"},
		"with a number alone": {[]string{"probe", "live", "--timeout=1"}, `--timeout is "1"`},
	} {
		t.Run(name, func(t *testing.T) {
			testProgram(nil).runHere(t, tt.args...).wants(t, option.Usage, "", tt.says)
		})
	}
}
