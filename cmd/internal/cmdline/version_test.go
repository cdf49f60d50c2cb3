package cmdline

import (
	"io"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

func TestAddVersion(t *testing.T) {
	want := "program version v1.2.3 (" + runtime.Version() + " " + runtime.GOOS + "/" + runtime.GOARCH + ")\n"
	for _, argument := range []string{"version", "--version"} {
		root := &cobra.Command{Use: "program COMMAND", RunE: func(*cobra.Command, []string) error { return nil }}
		AddVersion(root, "v1.2.3")
		var stdout strings.Builder
		if code := Execute(t.Context(), root, []string{argument}, &stdout, io.Discard); code != ExitOK || stdout.String() != want {
			t.Errorf("%s ended with status %d and printed %q; want %q", argument, code, &stdout, want)
		}
	}
}

func TestBuildVersion(t *testing.T) {
	for name, tt := range map[string]struct {
		info debug.BuildInfo
		want string
	}{
		"module":  {debug.BuildInfo{Main: debug.Module{Version: "v1.0.0"}}, "v1.0.0"},
		"commit":  {debug.BuildInfo{Main: debug.Module{Version: "(devel)"}, Settings: []debug.BuildSetting{{Key: "GOOS", Value: "x"}, {Key: "vcs.revision", Value: "abc"}}}, "abc"},
		"unknown": {debug.BuildInfo{}, "unknown"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := buildVersion(&tt.info); got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
		})
	}
}
