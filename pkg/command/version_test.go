package command

import (
	"runtime/debug"
	"testing"
)

func TestBuildVersion(t *testing.T) {
	tests := map[string]struct {
		info debug.BuildInfo
		want string
	}{
		"module":  {debug.BuildInfo{Main: debug.Module{Version: "v1.0.0"}}, "v1.0.0"},
		"commit":  {debug.BuildInfo{Main: debug.Module{Version: "(devel)"}, Settings: []debug.BuildSetting{{Key: "GOOS", Value: "x"}, {Key: "vcs.revision", Value: "abc"}}}, "abc"},
		"unknown": {debug.BuildInfo{}, "unknown"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := buildVersion(&tt.info); got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
		})
	}
}
