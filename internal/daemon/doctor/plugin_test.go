package doctor

import (
	"errors"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/api/models"
	"github.com/delegated-ipam/delegated-ipam/internal/daemon"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/profile"
)

// newPool returns a pool without faults, with a change.
func newPool(change func(*pool)) pool {
	p := pool{
		name:     "default",
		network:  call.Network{Name: "pods", File: "/net.d/05.conflist", CNIVersion: "1.0.0", IPAMType: "host-local"},
		stateDir: directory{path: "/data/pods", at: "/data/pods"},
		plugin:   plugin.Inspection{Profile: profile.Profile{Type: "host-local", StateDirKey: "dataDir"}, NetNS: "/none", StateKey: "dataDir"},
		status: models.PoolStatus{
			Plugin: "host-local", Binary: "/bin/host-local", CniVersion: "1.1.0", PluginVersions: []string{"1.0.0", "1.1.0"},
		},
	}
	if change != nil {
		change(&p)
	}
	return p
}

// runPool runs a check with one pool, which newPool returns with a change.
func runPool(name string, change func(*pool)) []Finding {
	return run(&Observations{Config: &daemon.Config{}, pools: []pool{newPool(change)}}, name)
}

func TestCNIConfig(t *testing.T) {
	found := func(served string) []Finding {
		return runPool("cni-config", func(p *pool) { p.confErr, p.status.Network = errors.New("invalid JSON"), served })
	}
	of := func(pluginType, network, file string) []Finding {
		c := daemon.Config{}
		c.Pools, c.CNIConfFile = map[string]string{"default": network}, file
		podman := newPool(func(p *pool) { p.network.PluginConfig = []byte(`{"type":"` + pluginType + `"}`) })
		return run(&Observations{Config: &c, pools: []pool{podman}}, "cni-config")
	}
	runCases(t, map[string]testCase{
		"of Cilium":        {of("cilium-cni", "", ""), states(ok), nil},
		"of podman":        {of("bridge", "", ""), states(warning), []string{`"pods"`, "bridge, not of cilium-cni", "--cni-network"}},
		"named":            {of("bridge", "pods", ""), states(ok), nil},
		"named file":       {of("bridge", "", "/net.d/05.conflist"), states(ok), nil},
		"valid":            {runPool("cni-config", nil), states(ok), []string{"/net.d/05.conflist", `"pods"`, "host-local"}},
		"invalid":          {found(""), states(failed), []string{"invalid JSON", "--cni-conf-dir", "podCIDRs"}},
		"invalid, running": {found("pods"), states(warning), []string{"invalid JSON", `"pods"`, "next start"}},
	})
	t.Run("other checks are skipped", func(t *testing.T) {
		invalid := newPool(func(p *pool) { p.confErr = errors.New("invalid JSON") })
		o := &Observations{Config: &daemon.Config{}, pools: []pool{invalid}}
		if got := run(o, "plugin", "runtime-gc", "netns", "plugin-files", "plugin-state"); len(got) > 0 {
			t.Errorf("found %+v", got)
		}
	})
}

func TestPlugin(t *testing.T) {
	found := func(change func(*models.PoolStatus)) []Finding {
		return runPool("plugin", func(p *pool) { change(&p.status) })
	}
	runCases(t, map[string]testCase{
		"usable":   {found(func(*models.PoolStatus) {}), states(ok), []string{"/bin/host-local", "version 1.1.0"}},
		"embedded": {found(func(s *models.PoolStatus) { s.Binary, s.Embedded = "", "by --host-local" }), states(ok), []string{"own process: by --host-local"}},
		"error":    {found(func(s *models.PoolStatus) { s.Error = "exec format error" }), states(failed), []string{"exec format error", "correct the file"}},
		"not ready": {
			found(func(s *models.PoolStatus) { s.NotReady, s.ProgramDiffers = "refuses it", "accepts it" }),
			states(failed, warning),
			[]string{"refuses it", "accepts it", "--host-local"},
		},
	})
}

func TestRuntimeGC(t *testing.T) {
	gc := func(version string, disabled bool, supported ...string) []Finding {
		return runPool("runtime-gc", func(p *pool) {
			p.network.CNIVersion, p.network.DisableGC, p.status.PluginVersions = version, disabled, supported
		})
	}
	by := func(pluginType string, containers bool) []Finding {
		return runPool("runtime-gc", func(p *pool) {
			p.network.CNIVersion, p.network.ServesContainers = "1.1.0", containers
			p.network.PluginConfig = []byte(`{"type":"` + pluginType + `"}`)
		})
	}
	runCases(t, map[string]testCase{
		"version below 1.1.0":        {gc("1.0.0", false, "1.0.0", "1.1.0"), states(ok), []string{"1.0.0"}},
		"no version":                 {gc("", false, "1.1.0"), states(ok), []string{"0.1.0"}},
		"1.1.0 with disableGC":       {gc("1.1.0", true, "1.1.0"), states(ok), []string{"disableGC is set"}},
		"plugin without GC":          {gc("1.1.0", false, "0.3.1", "1.0.0"), states(ok), []string{"host-local"}},
		"plugin with GC":             {gc("1.1.0", false, "1.0.0", "1.1.0"), states(warning), []string{`"disableGC": true`, "/net.d/05.conflist", "host-local"}},
		"plugin of unknown versions": {gc("1.1.0", false), states(warning), nil},
		"through the daemon":         {by("ptp", true), states(ok), []string{"through the daemon"}},
		"delegated by cilium-cni":    {by("cilium-cni", false), states(ok), []string{"cilium-cni does not pass a GC on to host-local", "v1.20"}},
		"delegated by bridge":        {by("bridge", false), states(ok), []string{"v1.10.0"}},
		"delegated by another":       {by("ptp", false), states(warning), []string{"host-local may free"}},
	})
}

func TestPluginFiles(t *testing.T) {
	file := profile.Requirement{Kind: profile.RequireFile, Key: "configuration_path", Paths: []string{"/etc/a.conf", "/host/a.conf"}, Why: "ADD and DEL fail"}
	dir := profile.Requirement{Kind: profile.RequireDirectory, Paths: []string{"/run/queue"}, Why: "DEL fails"}
	with := func(missing ...profile.Requirement) []Finding {
		return runPool("plugin-files", func(p *pool) { p.plugin.Missing = missing })
	}
	runCases(t, map[string]testCase{
		"nothing missing": {with(), states(ok), []string{"nothing"}},
		"file":            {with(file), states(failed), []string{"/etc/a.conf or /host/a.conf", "ADD and DEL fail", "ipam.configuration_path"}},
		"directory":       {with(dir), states(failed), []string{"needs a directory", "/run/queue", "DEL fails", "mount it"}},
		"both":            {with(file, dir), states(failed, failed), nil},
		"unknown plugin":  {runPool("plugin-files", func(p *pool) { p.plugin.Profile = profile.Profile{} }), nil, nil},
	})
}
