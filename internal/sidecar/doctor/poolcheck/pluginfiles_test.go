package poolcheck

import (
	"testing"

	"github.com/delegated-ipam/delegated-ipam/internal/plugin/profile"
	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/doctor/check"
)

func TestPluginFiles(t *testing.T) {
	file := profile.Requirement{Kind: profile.RequireFile, Key: "configuration_path", Paths: []string{"/etc/a.conf", "/host/a.conf"}, Why: "ADD and DEL fail"}
	dir := profile.Requirement{Kind: profile.RequireDirectory, Paths: []string{"/run/queue"}, Why: "DEL fails"}
	with := func(missing ...profile.Requirement) []check.Finding {
		return run(PluginFiles, func(p *check.Pool) { p.Plugin.Missing = missing })
	}
	runCases(t, map[string]testCase{
		"nothing missing": {with(), states(ok), []string{"nothing"}},
		"file":            {with(file), states(failed), []string{"/etc/a.conf or /host/a.conf", "ADD and DEL fail", "ipam.configuration_path"}},
		"directory":       {with(dir), states(failed), []string{"needs a directory", "/run/queue", "DEL fails", "mount it"}},
		"both":            {with(file, dir), states(failed, failed), nil},
		"unknown plugin":  {run(PluginFiles, func(p *check.Pool) { p.Plugin.Profile = profile.Profile{} }), nil, nil},
	})
}
