package cli

import (
	"runtime"
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/cmd/internal/cmdline"
)

func TestVersion(t *testing.T) {
	for _, argument := range []string{"version", "--version"} {
		testDependencies(nil).exec(t, argument).wants(t, cmdline.ExitOK, "delegated-ipam version v1.2.3 ("+runtime.Version()+" "+runtime.GOOS+"/"+runtime.GOARCH+")\n")
	}
}

func TestRun(t *testing.T) {
	var stdout, stderr strings.Builder
	if code := Run(t.Context(), []string{"version"}, nil, &stdout, &stderr, "v9"); code != cmdline.ExitOK || !strings.HasPrefix(stdout.String(), "delegated-ipam version v9 (") {
		t.Errorf("version ended with status %d and printed %q, to stderr %q", code, &stdout, &stderr)
	}
	environ := []string{"=weird", "CILIUM_SOCK=/first", "CILIUM_SOCK=/none/last=1"}
	if code := Run(t.Context(), []string{"list"}, environ, &stdout, &stderr, ""); code != cmdline.ExitFailed || !strings.Contains(stderr.String(), "/none/last=1: ") {
		t.Errorf("list ended with status %d and printed %q to stderr; want it to name the socket in the environment", code, &stderr)
	}
}
