package cli

import (
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
)

func TestVersionTellsProgramGoAndPlatform(t *testing.T) {
	testProgram(nil).runHere(t, "version").wants(t, exitDone, "delegated-ipam v1.2.3\n"+runtime.Version()+" "+runtime.GOOS+"/"+runtime.GOARCH+"\n")
}

func TestTheVersionComesFromTheBuildIfItWasNotGiven(t *testing.T) {
	tests := map[string]struct {
		info debug.BuildInfo
		want string
	}{
		"the module's":            {debug.BuildInfo{Main: debug.Module{Version: "v1.0.0"}}, "v1.0.0"},
		"the commit":              {debug.BuildInfo{Main: debug.Module{Version: "(devel)"}, Settings: []debug.BuildSetting{{Key: "GOOS", Value: "x"}, {Key: "vcs.revision", Value: "abc"}}}, "abc"},
		"unknown if none is said": {debug.BuildInfo{}, "unknown"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := buildVersion(&tt.info); got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
		})
	}
}

func TestRunTakesArgumentsEnvironmentAndStreams(t *testing.T) {
	var stdout, stderr strings.Builder
	if code := Run(t.Context(), []string{"version"}, nil, &stdout, &stderr, "v9"); code != exitDone || !strings.HasPrefix(stdout.String(), "delegated-ipam v9\n") {
		t.Errorf("version ended with status %d and printed %q, to stderr %q", code, &stdout, &stderr)
	}
	environ := []string{"=weird", "CILIUM_SOCK=/first", "CILIUM_SOCK=/none/last=1"}
	if code := Run(t.Context(), []string{"list"}, environ, &stdout, &stderr, ""); code != exitFailed || !strings.Contains(stderr.String(), "/none/last=1: ") {
		t.Errorf("list ended with status %d and printed %q to stderr; want it to name the socket in the environment", code, &stderr)
	}
}
