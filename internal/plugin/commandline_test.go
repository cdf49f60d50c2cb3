package plugin

import (
	"encoding/json"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

// The shell passes on what the runner would have, with any characters.
func TestCommandLine(t *testing.T) {
	f := newFake(t)
	target := f.call("id")
	target.Invocation.Plugin, target.Invocation.Binary = "shell", filepath.Join(f.bin, "shell")
	harness.WriteProgram(t, target.Invocation.Binary, []byte("#!/bin/sh\nenv | grep ^CNI_ | sort; cat\n"))
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

	target.Invocation.Plugin, target.Invocation.Binary = "gone", "/nowhere/gone"
	got := f.runner.CommandLine(call.VerbDel, target)
	if !strings.HasPrefix(got, "# DEL of container ID id cannot be run: ") || !strings.Contains(got, "/nowhere/gone") {
		t.Errorf("got %s, want a comment with the reason", got)
	}
}
