package doctor

import (
	"errors"
	"slices"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/api/models"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/profile"
	"github.com/delegated-ipam/delegated-ipam/internal/sidecar"
)

// newPool returns a pool without faults, with a change.
func newPool(change func(*pool)) pool {
	p := pool{
		name:     "default",
		network:  call.Network{Name: "pods", File: "/net.d/05.conflist", CNIVersion: "1.0.0", IPAMType: "host-local"},
		stateDir: directory{path: "/data/pods", at: "/data/pods"},
		plugin: plugin.Inspection{
			Plugin: "host-local", Profile: profile.Profile{Type: "host-local", StateDirKey: "dataDir"}, Binary: "/bin/host-local",
			CNIVersion: "1.1.0", Versions: []string{"1.0.0", "1.1.0"}, NetNS: "/none", StateKey: "dataDir",
		},
	}
	if change != nil {
		change(&p)
	}
	return p
}

// runPool runs a check with one pool, which newPool returns with a change.
func runPool(name string, change func(*pool)) []Finding {
	return run(&Observations{Config: &sidecar.Config{}, pools: []pool{newPool(change)}}, name)
}

func TestCNIConfig(t *testing.T) {
	invalid := newPool(func(p *pool) { p.confErr = errors.New("invalid JSON") })
	served := &models.DelegatedIPAMStatus{Pools: []*models.PoolStatus{{Pool: "default", Network: "pods"}}}
	found := func(file string, status *models.DelegatedIPAMStatus) []Finding {
		o := &Observations{Config: &sidecar.Config{}, pools: []pool{invalid}, Status: status}
		o.Config.CNIConfFile = file
		return run(o, "cni-config")
	}
	runCases(t, map[string]testCase{
		"valid":            {runPool("cni-config", nil), states(ok), []string{"/net.d/05.conflist", `"pods"`, "host-local"}},
		"invalid":          {found("", nil), states(failed), []string{"invalid JSON", "--cni-conf-dir"}},
		"no file":          {found("/nowhere/pods.conflist", nil), states(failed), []string{"delegated-ipam-network", "podCIDRs"}},
		"invalid, running": {found("", served), states(warning), []string{"invalid JSON", `"pods"`, "next start"}},
	})
	t.Run("other checks are skipped", func(t *testing.T) {
		o := &Observations{Config: &sidecar.Config{}, pools: []pool{invalid}}
		if got := run(o, "plugin", "cni-versions", "runtime-gc", "node-lock", "netns", "plugin-files", "plugin-state"); len(got) > 0 {
			t.Errorf("found %+v", got)
		}
	})
}

func TestPlugin(t *testing.T) {
	notStarted := &call.Error{Verb: call.VerbVersion, Plugin: "host-local", Outcome: call.NotStarted, Err: errors.New("exec format error")}
	crashed := &call.Error{Verb: call.VerbVersion, Plugin: "host-local", Outcome: call.Unknown, Err: errors.New("signal: killed")}
	found := func(change func(*pool)) []Finding {
		o := &Observations{Config: &sidecar.Config{}, pools: []pool{newPool(change)}}
		return run(o, "plugin", "cni-versions", "runtime-gc", "node-lock", "netns", "plugin-state")
	}
	// The rest are the states of runtime-gc, node-lock, netns and plugin-state.
	withRest := func(first ...State) []State { return append(slices.Clone(first), ok, ok, ok, ok) }
	runCases(t, map[string]testCase{
		"usable": {found(nil), withRest(ok, ok), []string{"/bin/host-local", "1.1.0 is used", "1.0.0, 1.1.0"}},
		"not found": {
			found(func(p *pool) { p.plugin.FindErr = errors.New("not in /bin"); p.plugin.Err = p.plugin.FindErr }),
			withRest(failed),
			[]string{"not in /bin", "--cni-bin-dir"},
		},
		"not started": {
			found(func(p *pool) { p.plugin.VersionErr = notStarted; p.plugin.Err = notStarted }),
			withRest(failed),
			[]string{"exec format error", "/bin/host-local", "statically linked"},
		},
		"VERSION fails": {
			found(func(p *pool) { p.plugin.VersionErr = crashed; p.plugin.Err = crashed }),
			withRest(ok, failed),
			[]string{"signal: killed", "VERSION"},
		},
		"rejected by its profile": {
			found(func(p *pool) { p.plugin.Err = errors.New("it loses addresses") }),
			withRest(ok, failed, ok),
			[]string{"it loses addresses"},
		},
		"configuration refused": {
			found(func(p *pool) { p.plugin.ConfigErr = errors.New("refuses /net.d/05.conflist:7: gateway") }),
			withRest(ok, failed, ok),
			[]string{"/net.d/05.conflist:7", "correct the file"},
		},
		"no address": {
			found(func(p *pool) { p.plugin.AddressErr = errors.New("ipv6 addresses alone") }),
			withRest(ok, failed, ok),
			[]string{"ipv6 addresses alone", "correct the file or the option"},
		},
		"unknown profile": {
			found(func(p *pool) {
				p.plugin = plugin.Inspection{Plugin: "host-local", Err: errors.New("broken profile")}
			}),
			states(failed, ok, ok),
			[]string{"broken profile"},
		},
		"invalid option": {
			run(&Observations{poolsErr: errors.New("--plugin-env")}, "plugin"), states(failed), []string{"--plugin-env", "does not start"},
		},
	})
}

func TestNetNS(t *testing.T) {
	runCases(t, map[string]testCase{
		"other":          {runPool("netns", nil), states(ok), []string{"/none"}},
		"own":            {runPool("netns", func(p *pool) { p.netNSErr = errors.New("is our own") }), states(failed), []string{"is our own", "--cni-netns"}},
		"cannot be made": {runPool("netns", func(p *pool) { p.plugin.NetNSErr = errors.New("CAP_SYS_ADMIN") }), states(failed), []string{"CAP_SYS_ADMIN", "name it with --cni-netns"}},
	})
}

func TestRuntimeGC(t *testing.T) {
	gc := func(version string, disabled bool, supported ...string) []Finding {
		return runPool("runtime-gc", func(p *pool) {
			p.network.CNIVersion, p.network.DisableGC, p.plugin.Versions = version, disabled, supported
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
		"through the sidecar":        {by("ptp", true), states(ok), []string{"through the sidecar"}},
		"delegated by cilium-cni":    {by("cilium-cni", false), states(ok), []string{"cilium-cni does not pass a GC on to host-local", "v1.20"}},
		"delegated by bridge":        {by("bridge", false), states(ok), []string{"v1.10.0"}},
		"delegated by another":       {by("ptp", false), states(warning), []string{"host-local may free"}},
	})
}

func TestNodeLock(t *testing.T) {
	lock := func(holder string) []Finding {
		o := &Observations{Config: &sidecar.Config{}, pools: []pool{newPool(func(p *pool) { p.lockHolder = holder })}}
		o.Config.StateDir = "/a"
		return run(o, "node-lock")
	}
	runCases(t, map[string]testCase{
		"free":                    {lock(""), states(ok), []string{"no sidecar"}},
		"the sidecar itself":      {lock("PID 1, state directory /a"), states(ok), []string{"PID 1"}},
		"another state directory": {lock("PID 2, state directory /b"), states(failed), []string{"PID 2, state directory /b", "--node-name"}},
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
