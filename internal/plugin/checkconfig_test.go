package plugin

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

// writeConfig writes the configuration file of the network.
func (f *fixture) writeConfig(lines ...string) {
	f.t.Helper()
	f.network.File = filepath.Join(f.dir, "05.conflist")
	check.Must(f.t, os.WriteFile(f.network.File, []byte(strings.Join(lines, "\n")), 0o600))
}

// What the newest host-local refuses, with the line, and older ones accept. A CHECK of the configuration
// leaves no trace.
func TestRealHostLocalCheckConfig(t *testing.T) {
	for name, c := range map[string]struct{ ranges, line, want string }{
		"two families":           {`[[{"subnet":"10.1.0.0/24"}],[{"subnet":"fd00::/120","gateway":"fd00::9"}]]`, "", ""},
		"gateway outside":        {`[[{"subnet":"10.1.0.0/24","gateway":"10.1.1.1"}]]`, `"10.1.1.1"`, "gateway 10.1.1.1 not in network 10.1.0.0/24"},
		"gateway, other family":  {`[[{"subnet":"10.1.0.0/24","gateway":"fd00::1"}]]`, `"fd00:0::1"`, "gateway fd00::1 not in network"},
		"gateway, link-local":    {`[[{"subnet":"fd00::/120","gateway":"fe80::1"}]]`, `"FE80:0:0::1"`, "gateway fe80::1 not in network fd00::/120"},
		"rangeStart after end":   {`[[{"subnet":"10.1.0.0/24","rangeStart":"10.1.0.255"}]]`, `"10.1.0.255"`, "RangeStart 10.1.0.255 is after RangeEnd 10.1.0.254"},
		"gateway, line of range": {`[[{"subnet":"10.1.0.0/24","gateway":"10.1.1.1"}]]`, `{"subnet": "10.1.0.0/24", "end": "10.1.0.1"}`, "gateway 10.1.1.1 not in"},
		"in another file":        {`[[{"subnet":"10.1.0.0/24","gateway":"10.1.1.1"}]]`, "", "gateway 10.1.1.1 not in"},
	} {
		for _, version := range []string{"", harness.PluginsV19, harness.PluginsV14} {
			t.Run(name+", "+version, func(t *testing.T) {
				f := newRealOf(t, version, `{"type":"host-local","dataDir":"DIR","ranges":`+c.ranges+`}`)
				f.writeConfig(`{"cniVersion": "1.0.0", "ipam": {`, `"gateway": "10.1.1.10",`, c.line, `}}`)
				at := f.network.File
				if c.line != "" {
					at += ":3"
				}
				err := f.runner.CheckConfig(t.Context(), f.network, f.invocation("id"))
				if _, known := f.runner.acceptedConfigs.Load("net"); known != (err == nil) {
					t.Errorf("got %v, and that the configuration is known to be accepted: %v", err, known)
				}
				if version != "" || c.want == "" {
					check.Must(t, err)
				} else {
					wantText(t, err, "plugin host-local refuses the configuration "+at+": invalid range set 0: "+c.want)
				}
				if _, err := os.Stat(f.leaseDir()); err == nil {
					t.Error("host-local has created its directory")
				}
			})
		}
	}
}

// The CHECK runs once until the plugin or the configuration changes.
func TestCheckConfigCached(t *testing.T) {
	f := imitate(t, "host-local")
	accepted := func(calls int) {
		t.Helper()
		check.Must(t, f.runner.CheckConfig(t.Context(), f.network, f.invocation("id")))
		f.wantCalls(call.VerbCheck, calls)
	}
	accepted(1)
	accepted(1)
	// What a runtime passes for one container does not count.
	inv, err := f.runner.ContainerInvocation(t.Context(), f.network, call.Container{
		Attachment: call.Attachment{ContainerID: "c", IfName: "eth0"}, Args: "K8S_POD_NAME=p", RuntimeConfig: json.RawMessage(`{"portMappings":[]}`),
	})
	check.Must(t, errors.Join(err, f.runner.CheckConfig(t.Context(), f.network, inv)))
	accepted(1)
	f.configure(`{"type":"host-local","subnet":"10.2.0.0/24"}`, `{}`)
	f.network.File = "/none.conflist"
	accepted(2)
	data, err := os.ReadFile(os.Getenv(harness.EnvScripted))
	check.Must(t, err)
	next := filepath.Join(f.bin, "next")
	harness.WriteProgram(t, next, data)
	check.Must(t, os.Rename(next, filepath.Join(f.bin, "host-local")))
	f.script(call.VerbCheck, `{"error":`+goodError+`}`)
	err = f.runner.CheckConfig(t.Context(), f.network, f.invocation("id"))
	wantText(t, err, "plugin host-local refuses the configuration /none.conflist: no; none left")
	f.script(call.VerbCheck, `{}`)
	accepted(4)
	accepted(4)
	if calls := f.calls(call.VerbCheck); calls[0].Env["CNI_CONTAINERID"] == calls[1].Env["CNI_CONTAINERID"] {
		t.Errorf("CHECK was run twice for %q", calls[0].Env["CNI_CONTAINERID"])
	}
}

func TestAsConfigured(t *testing.T) {
	for name, c := range map[string]struct {
		ipam string
		same bool
	}{
		"other ranges":    {`{"type":"host-local","dataDir":"DIR","subnet":"10.2.0.0/24"}`, true},
		"unchanged":       {dualStack, false},
		"other directory": {`{"type":"host-local","dataDir":"DIR/other","subnet":"10.2.0.0/24"}`, false},
		"other plugin":    {`{"type":"static"}`, false},
		"no plugin":       {`{"type":"none"}`, false},
	} {
		t.Run(name, func(t *testing.T) {
			f := newReal(t, dualStack)
			recorded := f.invocation("id")
			f.configure(c.ipam, `{}`)
			got, ok := f.runner.AsConfigured(t.Context(), recorded, f.network)
			if ok != c.same || got.Equal(recorded) == c.same || !got.SameAttachment(recorded) {
				t.Errorf("got %v, %+v; want %v, for the same attachment", ok, got, c.same)
			}
		})
	}
}

// The plugin refuses what a runtime has passed for every verb. DEL and CHECK need none of it.
func TestAsConfiguredForRuntime(t *testing.T) {
	for _, args := range []string{"IgnoreUnknown=1;IP=none", "MINE=1"} {
		f := newReal(t, dualStack)
		c := f.call("id")
		f.add(c)
		c.Args = args
		wantError(t, f.run(call.VerbDel, c), call.Refused, "ARGS")
		var ok bool
		c.Invocation, ok = f.runner.AsConfigured(t.Context(), c.Invocation, f.network)
		check.True(t, ok, "got the same invocation; want one without the arguments")
		f.must(c, call.VerbCheck, call.VerbDel)
		f.wantLeases()
	}
}
