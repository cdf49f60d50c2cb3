package option

import (
	"runtime/debug"
	"testing"
)

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
