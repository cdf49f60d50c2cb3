package poolcheck

import (
	"errors"
	"slices"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/internal/cniconf"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/profile"
	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/doctor/check"
	"github.com/delegated-ipam/delegated-ipam/test/checktest"
)

const ok, warning, failed = check.OK, check.Warning, check.Error

func states(all ...check.State) []check.State { return all }

// testCase has findings, their expected states, and texts that they contain.
type testCase struct {
	found    []check.Finding
	states   []check.State
	contains []string
}

func runCases(t *testing.T, cases map[string]testCase) {
	t.Helper()
	for name, c := range cases {
		t.Run(name, func(t *testing.T) { checktest.Want(t, c.found, c.states, c.contains...) })
	}
}

// newPool returns a pool without faults, with a change.
func newPool(change func(*check.Pool)) check.Pool {
	p := check.Pool{
		Name:    "default",
		Network: call.Network{Name: "pods", File: "/net.d/05.conflist", CNIVersion: "1.0.0", IPAMType: "host-local"},
		Plugin: plugin.Inspection{
			Plugin: "host-local", Profile: profile.Profile{Type: "host-local", StateDirKey: "dataDir"}, Binary: "/bin/host-local",
			CNIVersion: "1.1.0", Versions: []string{"1.0.0", "1.1.0"}, NetNS: "/none", StateKey: "dataDir",
		},
	}
	if change != nil {
		change(&p)
	}
	return p
}

// run runs a check with one pool, which newPool returns with a change.
func run(c check.Check, change func(*check.Pool)) []check.Finding {
	return c.Run(&check.Observations{Config: &check.Config{}, Pools: []check.Pool{newPool(change)}})
}

func TestCNIConfig(t *testing.T) {
	noConfig := func(served string) func(*check.Pool) {
		return func(p *check.Pool) { p.ConfErr, p.Served = errors.New("invalid JSON"), served }
	}
	runCases(t, map[string]testCase{
		"valid":   {run(CNIConfig, nil), states(ok), []string{"/net.d/05.conflist", `"pods"`, "host-local"}},
		"invalid": {run(CNIConfig, noConfig("")), states(failed), []string{"invalid JSON", "--cni-conf-dir"}},
		"no file": {
			CNIConfig.Run(&check.Observations{
				Config: &check.Config{Conf: cniconf.Options{File: "/nowhere/pods.conflist"}},
				Pools:  []check.Pool{newPool(noConfig(""))},
			}), states(failed), []string{"delegated-ipam-network", "podCIDRs"},
		},
		"invalid, running": {run(CNIConfig, noConfig("pods")), states(warning), []string{"invalid JSON", `"pods"`, "next start"}},
	})
	t.Run("other checks are skipped", func(t *testing.T) {
		for _, c := range []check.Check{Plugin, CNIVersions, RuntimeGC, NodeLock, NetNS, PluginState} {
			if got := run(c, noConfig("")); len(got) > 0 {
				t.Errorf("%s found %+v", c.Name, got)
			}
		}
	})
}

func TestPlugin(t *testing.T) {
	notStarted := &call.Error{Verb: call.VerbVersion, Plugin: "host-local", Outcome: call.NotStarted, Err: errors.New("exec format error")}
	crashed := &call.Error{Verb: call.VerbVersion, Plugin: "host-local", Outcome: call.Unknown, Err: errors.New("signal: killed")}
	all := []check.Check{Plugin, CNIVersions, RuntimeGC, NodeLock, NetNS, PluginState}
	found := func(change func(*check.Pool)) []check.Finding {
		return check.Run(all, &check.Observations{Config: &check.Config{}, Pools: []check.Pool{newPool(change)}})
	}
	// rest are the states of RuntimeGC, NodeLock, NetNS and PluginState.
	withRest := func(first ...check.State) []check.State { return append(slices.Clone(first), ok, ok, ok, ok) }
	runCases(t, map[string]testCase{
		"usable": {found(nil), withRest(ok, ok), []string{"/bin/host-local", "1.1.0 is used", "1.0.0, 1.1.0"}},
		"not found": {
			found(func(p *check.Pool) { p.Plugin.FindErr = errors.New("not in /bin"); p.Plugin.Err = p.Plugin.FindErr }),
			withRest(failed),
			[]string{"not in /bin", "--cni-bin-dir"},
		},
		"not started": {
			found(func(p *check.Pool) { p.Plugin.VersionErr = notStarted; p.Plugin.Err = notStarted }),
			withRest(failed),
			[]string{"exec format error", "/bin/host-local", "statically linked"},
		},
		"VERSION fails": {
			found(func(p *check.Pool) { p.Plugin.VersionErr = crashed; p.Plugin.Err = crashed }),
			withRest(ok, failed),
			[]string{"signal: killed", "VERSION"},
		},
		"rejected by its profile": {
			found(func(p *check.Pool) { p.Plugin.Err = errors.New("it loses addresses") }),
			withRest(ok, failed, ok),
			[]string{"it loses addresses"},
		},
		"unknown profile": {
			found(func(p *check.Pool) {
				p.Plugin = plugin.Inspection{Plugin: "host-local", Err: errors.New("broken profile")}
			}),
			states(failed, ok, ok),
			[]string{"broken profile"},
		},
		"invalid option": {
			Plugin.Run(&check.Observations{PoolsErr: errors.New("--plugin-env")}), states(failed), []string{"--plugin-env", "does not start"},
		},
	})
}

func TestNetNS(t *testing.T) {
	runCases(t, map[string]testCase{
		"other":          {run(NetNS, nil), states(ok), []string{"/none"}},
		"own":            {run(NetNS, func(p *check.Pool) { p.NetNSErr = errors.New("is our own") }), states(failed), []string{"is our own", "--cni-netns"}},
		"cannot be made": {run(NetNS, func(p *check.Pool) { p.Plugin.NetNSErr = errors.New("CAP_SYS_ADMIN") }), states(failed), []string{"CAP_SYS_ADMIN", "name it with --cni-netns"}},
	})
}

func TestRuntimeGC(t *testing.T) {
	gc := func(version string, disabled bool, supported ...string) []check.Finding {
		return run(RuntimeGC, func(p *check.Pool) {
			p.Network.CNIVersion, p.Network.DisableGC, p.Plugin.Versions = version, disabled, supported
		})
	}
	runCases(t, map[string]testCase{
		"version below 1.1.0":        {gc("1.0.0", false, "1.0.0", "1.1.0"), states(ok), []string{"1.0.0"}},
		"no version":                 {gc("", false, "1.1.0"), states(ok), []string{"0.1.0"}},
		"1.1.0 with disableGC":       {gc("1.1.0", true, "1.1.0"), states(ok), []string{"disableGC is set"}},
		"plugin without GC":          {gc("1.1.0", false, "0.3.1", "1.0.0"), states(ok), []string{"host-local"}},
		"plugin with GC":             {gc("1.1.0", false, "1.0.0", "1.1.0"), states(warning), []string{`"disableGC": true`, "/net.d/05.conflist", "host-local"}},
		"plugin of unknown versions": {gc("1.1.0", false), states(warning), nil},
	})
}

func TestNodeLock(t *testing.T) {
	lock := func(holder string, other bool) []check.Finding {
		return run(NodeLock, func(p *check.Pool) { p.LockHolder, p.OtherHolder = holder, other })
	}
	runCases(t, map[string]testCase{
		"free":                    {lock("", true), states(ok), []string{"no sidecar"}},
		"the sidecar itself":      {lock("PID 1, state directory /a", false), states(ok), []string{"PID 1"}},
		"another state directory": {lock("PID 2, state directory /b", true), states(failed), []string{"PID 2, state directory /b", "--node-name"}},
	})
}
