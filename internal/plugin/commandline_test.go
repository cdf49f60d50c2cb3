package plugin

import (
	"encoding/json"
	"os/exec"
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/profile"
)

// The shell passes on what the runner would have, with any characters.
func TestCommandLine(t *testing.T) {
	f := newFake(t)
	target := f.call("id")
	target.Invocation.Plugin, target.Invocation.Binary = "shell", f.shellPlugin(`env | grep ^CNI_ | sort; cat`)
	target.Invocation.Args = `IgnoreUnknown=1;K=it's $HOME`
	target.Invocation.Config = json.RawMessage(`{"name":"it's ` + "`a`" + ` %s \\ net"}`)
	target.PrevResult = json.RawMessage(goodResult)
	out, err := exec.Command("sh", "-c", f.runner.CommandLine(call.VerbDel, target)).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	env, stdin, _ := strings.Cut(string(out), "{")
	want := "CNI_ARGS=IgnoreUnknown=1;K=it's $HOME\nCNI_COMMAND=DEL\nCNI_CONTAINERID=id\nCNI_IFNAME=eth0\nCNI_NETNS=" + DefaultNetNS + "\nCNI_PATH=" + f.bin + "\n"
	if env != want {
		t.Errorf("got the environment\n%s\nwant\n%s", env, want)
	}
	var config struct {
		Name       string
		PrevResult json.RawMessage
	}
	if err := json.Unmarshal([]byte("{"+stdin), &config); err != nil || config.Name != "it's `a` %s \\ net" || len(config.PrevResult) == 0 {
		t.Errorf("got stdin {%s (%v), want the configuration with prevResult", stdin, err)
	}
}

func TestCommandLineNotPossible(t *testing.T) {
	f := newFake(t)
	missing := f.call("id")
	missing.Invocation.Plugin, missing.Invocation.Binary = "gone", "/nowhere/gone"
	unsent := f.call("id")
	unsent.Requested, unsent.Invocation.Profile = request("10.1.0.9"), profile.Profile{}
	for name, c := range map[string]struct {
		verb  string
		call  call.Call
		parts []string
	}{
		"no binary": {call.VerbDel, missing, []string{"# DEL of container ID id cannot be run: ", "/nowhere/gone"}},
		"request":   {call.VerbAdd, unsent, []string{"# ADD of container ID id cannot be run: ", "10.1.0.9"}},
	} {
		t.Run(name, func(t *testing.T) {
			got := f.runner.CommandLine(c.verb, c.call)
			for _, part := range c.parts {
				if !strings.Contains(got, part) {
					t.Errorf("got %s, want %s in it", got, part)
				}
			}
		})
	}
}
