package doctor

import (
	"errors"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/pkg/app"
	"github.com/delegated-ipam/delegated-ipam/pkg/cniconf"
	"github.com/delegated-ipam/delegated-ipam/pkg/delegate"
	"github.com/delegated-ipam/delegated-ipam/pkg/delegate/call"
	"github.com/delegated-ipam/delegated-ipam/pkg/delegate/profile"
)

// pool is one that is as it should be, with changes.
func pool(change func(*Pool)) Pool {
	p := Pool{Inspection: app.Inspection{
		Pool:    "default",
		Network: cniconf.Network{Name: "pods", File: "/net.d/05.conflist", CNIVersion: "1.0.0", IPAMType: "host-local"},
		Plugin: delegate.Inspection{
			Plugin: "host-local", Profile: profile.Profile{Type: "host-local", StateDirKey: "dataDir"}, Binary: "/bin/host-local",
			CNIVersion: "1.1.0", Versions: []string{"1.0.0", "1.1.0"}, NetNS: "/none",
		},
	}}
	if change != nil {
		change(&p)
	}
	return p
}

func TestTheNetworkOfAPoolMustBeFound(t *testing.T) {
	judge(t, map[string]judged{
		"it is": {pool(nil).conflist(), []string{"ok conflist"}, []string{"/net.d/05.conflist", `"pods"`, "host-local"}},
		"it is not, and nothing else is looked at": {
			pool(func(p *Pool) { p.ConfErr = errors.New("no JSON") }).findings(), []string{"error conflist"}, []string{"no JSON", "--cni-conf-dir"},
		},
		"it is not any more, and the sidecar goes on": {
			pool(func(p *Pool) { p.ConfErr, p.Served = errors.New("no JSON"), "pods" }).findings(), []string{"warning conflist"}, []string{"no JSON", `"pods"`, "started again"},
		},
	})
}

func TestThePluginMustBeThereAndRun(t *testing.T) {
	notStarted := &call.Error{Verb: call.VerbVersion, Plugin: "host-local", Outcome: call.NotStarted, Err: errors.New("exec format error")}
	crashed := &call.Error{Verb: call.VerbVersion, Plugin: "host-local", Outcome: call.Unknown, Err: errors.New("signal: killed")}
	rest := []string{"ok gc", "ok guard", "ok netns", "ok plugin-state"}
	with := func(first ...string) []string { return append(first, rest...) }
	judge(t, map[string]judged{
		"it does": {pool(nil).findings(), with("ok conflist", "ok plugin", "ok versions"), []string{"/bin/host-local", "1.1.0 is used", "1.0.0, 1.1.0"}},
		"it is not found": {
			pool(func(p *Pool) { p.Plugin.FindErr = errors.New("not in /bin"); p.Plugin.Err = p.Plugin.FindErr }).findings(),
			with("ok conflist", "error plugin"),
			[]string{"not in /bin", "--cni-bin-dir"},
		},
		"it cannot be started": {
			pool(func(p *Pool) { p.Plugin.VersionErr = notStarted; p.Plugin.Err = notStarted }).findings(),
			with("ok conflist", "error plugin"),
			[]string{"exec format error", "/bin/host-local", "statically linked"},
		},
		"it does not answer VERSION": {
			pool(func(p *Pool) { p.Plugin.VersionErr = crashed; p.Plugin.Err = crashed }).findings(),
			with("ok conflist", "ok plugin", "error versions"),
			[]string{"signal: killed", "VERSION"},
		},
		"it is refused for another reason": {
			pool(func(p *Pool) { p.Plugin.Err = errors.New("it loses addresses") }).findings(),
			append(with("ok conflist", "ok plugin", "ok versions"), "error plugin"),
			[]string{"it loses addresses"},
		},
		"what it is is not known": {
			pool(func(p *Pool) {
				p.Plugin = delegate.Inspection{Plugin: "host-local", Err: errors.New("broken profile")}
			}).findings(),
			[]string{"ok conflist", "error plugin", "ok gc", "ok guard"},
			[]string{"broken profile"},
		},
	})
}

func TestOurNetworkNamespaceIsNotPassedOn(t *testing.T) {
	judge(t, map[string]judged{
		"it is not":           {pool(nil).netns(), []string{"ok netns"}, []string{"/none"}},
		"it would be":         {pool(func(p *Pool) { p.NetNSErr = errors.New("is our own") }).netns(), []string{"error netns"}, []string{"is our own", "--cni-netns"}},
		"the plugin has none": {pool(func(p *Pool) { p.Plugin.NetNSErr = errors.New("CAP_SYS_ADMIN") }).netns(), []string{"error netns"}, []string{"CAP_SYS_ADMIN", "name it with --cni-netns"}},
	})
}

func TestAGCThatCouldFreeOursIsAWarning(t *testing.T) {
	gc := func(version string, disabled bool, known ...string) []Finding {
		return pool(func(p *Pool) {
			p.Network.CNIVersion, p.Network.DisableGC, p.Plugin.Versions = version, disabled, known
		}).gc()
	}
	judge(t, map[string]judged{
		"a configuration below 1.1.0":    {gc("1.0.0", false, "1.0.0", "1.1.0"), []string{"ok gc"}, []string{"1.0.0"}},
		"one without a version":          {gc("", false, "1.1.0"), []string{"ok gc"}, []string{"0.1.0"}},
		"1.1.0 with disableGC":           {gc("1.1.0", true, "1.1.0"), []string{"ok gc"}, []string{"disableGC is set"}},
		"a plugin that knows no GC":      {gc("1.1.0", false, "0.3.1", "1.0.0"), []string{"ok gc"}, []string{"host-local"}},
		"1.1.0 and a plugin that has it": {gc("1.1.0", false, "1.0.0", "1.1.0"), []string{"warning gc"}, []string{`"disableGC": true`, "/net.d/05.conflist", "host-local"}},
		"1.1.0 and a plugin not asked":   {gc("1.1.0", false), []string{"warning gc"}, nil},
	})
}

func TestASecondSidecarOfTheNetworkIsAnError(t *testing.T) {
	guard := func(holder string, other bool) []Finding {
		return pool(func(p *Pool) { p.Guard, p.GuardIsOther = holder, other }).guard()
	}
	judge(t, map[string]judged{
		"nobody":        {guard("", true), []string{"ok guard"}, []string{"nobody"}},
		"the one asked": {guard("PID 1, state folder /a", false), []string{"ok guard"}, []string{"PID 1"}},
		"another one":   {guard("PID 2, state folder /b", true), []string{"error guard"}, []string{"PID 2, state folder /b", "--node-name"}},
	})
}
