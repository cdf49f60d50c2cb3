package delegate

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/pkg/delegate/call"
	"github.com/delegated-ipam/delegated-ipam/pkg/delegate/profile"
)

func TestTheHighestVersionThatBothSidesKnowIsUsed(t *testing.T) {
	for name, c := range map[string]struct{ script, want string }{
		"the plugin knows all":                      {`{}`, "1.1.0"},
		"the plugin knows one that we do not":       {`{"versions":["0.4.0","7.0.0"]}`, "0.4.0"},
		"the order of the plugin's list is no rank": {`{"versions":["1.0.0","0.3.1","0.4.0"]}`, "1.0.0"},
		"the plugin is older than the conflist":     {`{"versions":["0.1.0","0.2.0"]}`, "0.2.0"},
		"the plugin answers in the form of 0.2.0":   {`{"stdout":"{\"cniVersion\":\"0.2.0\"}"}`, "0.2.0"},
		"the plugin does not know VERSION":          {`{"error":{"code":100,"msg":"unknown CNI_COMMAND: VERSION"}}`, "0.1.0"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.script(call.VerbVersion, c.script)
			got := b.context("id")
			if got.CNIVersion != c.want {
				t.Errorf("got CNI version %s, want %s", got.CNIVersion, c.want)
			}
			var config struct{ CNIVersion string }
			if err := json.Unmarshal(got.Config, &config); err != nil || config.CNIVersion != c.want {
				t.Errorf("got %q in the configuration (%v), want %s", config.CNIVersion, err, c.want)
			}
		})
	}
}

func TestVersionIsAskedOnceForABinary(t *testing.T) {
	b := newBench(t)
	begun := b.fifo("begun")
	b.script(call.VerbVersion, `{"announce":"begun","gate":"go"}`)
	var askers sync.WaitGroup
	for range 8 {
		askers.Go(func() {
			if _, err := b.runner.NewInvocation(t.Context(), b.network, "id", "owner"); err != nil {
				t.Error(err)
			}
		})
	}
	begun()
	b.write("go", "")
	askers.Wait()
	b.context("another")
	if got := len(b.calls(call.VerbVersion)); got != 1 {
		t.Errorf("VERSION was asked %d times, want once", got)
	}
}

func TestVersionIsAskedAgainWhenTheBinaryIsReplaced(t *testing.T) {
	b := newBench(t)
	b.context("id")
	data, err := os.ReadFile(os.Getenv(scriptedBinary))
	if err != nil {
		t.Fatal(err)
	}
	next := filepath.Join(b.bin, "next")
	if err := os.WriteFile(next, data, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(next, filepath.Join(b.bin, pluginType)); err != nil {
		t.Fatal(err)
	}
	b.script(call.VerbVersion, `{"versions":["0.4.0"]}`)
	if got := b.context("id").CNIVersion; got != "0.4.0" {
		t.Errorf("got CNI version %s, want 0.4.0 of the new binary", got)
	}
}

func TestAFailedVersionIsNotKept(t *testing.T) {
	for name, script := range map[string]string{
		"it refuses":              `{"times":1,"error":` + goodError + `}`,
		"it prints nonsense":      `{"times":1,"stdout":"hello"}`,
		"it prints no versions":   `{"times":1,"stdout":"{\"cniVersion\":\"1.0.0\"}"}`,
		"it is killed":            `{"times":1,"killSelf":9}`,
		"it knows no version":     `{"times":1,"stdout":"{\"cniVersion\":\"1.0.0\",\"supportedVersions\":[\"7.0.0\"]}"}`,
		"it prints two documents": `{"times":1,"stdout":"{\"cniVersion\":\"1.0.0\",\"supportedVersions\":[\"1.0.0\"]}{}"}`,
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.script(call.VerbVersion, script)
			_, err := b.runner.NewInvocation(t.Context(), b.network, "id", "owner")
			if err == nil {
				t.Fatal("got a context, want an error")
			}
			if name == "it knows no version" {
				// That is an answer, and it stays until the binary is replaced.
				if !strings.Contains(err.Error(), `"7.0.0"`) || !strings.Contains(err.Error(), `"1.1.0"`) {
					t.Errorf("got %q, want the versions of both sides", err)
				}
				return
			}
			var e *call.Error
			if !errors.As(err, &e) || e.Verb != call.VerbVersion {
				t.Errorf("got %v, want a *call.Error of VERSION", err)
			}
			b.context("id")
		})
	}
}

func TestAnAskerWhoLeavesDoesNotEndVersionForTheOthers(t *testing.T) {
	b := newBench(t)
	begun := b.fifo("begun")
	b.script(call.VerbVersion, `{"announce":"begun","gate":"go"}`)
	ctx, cancel := context.WithCancel(t.Context())
	left := make(chan error)
	go func() {
		_, err := b.runner.NewInvocation(ctx, b.network, "id", "owner")
		left <- err
	}()
	begun()
	cancel()
	if err := <-left; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want the cancellation", err)
	}
	b.write("go", "")
	b.context("id")
	if got := len(b.calls(call.VerbVersion)); got != 1 {
		t.Errorf("VERSION was asked %d times, want once", got)
	}
}

func TestAConfigurationThatCannotBeUsedIsRefused(t *testing.T) {
	for name, c := range map[string]struct{ config, text string }{
		"no ipam section":                  {`{"type":"cilium-cni"}`, "ipam.type is missing"},
		"an ipam section without a type":   {`{"ipam":{}}`, "ipam.type is missing"},
		"an empty ipam.type":               {`{"ipam":{"type":""}}`, "ipam.type is missing"},
		"an ipam.type that is null":        {`{"ipam":{"type":null}}`, "ipam.type is missing"},
		"an ipam.type that is a number":    {`{"ipam":{"type":7}}`, "ipam.type: "},
		"an ipam section that is a list":   {`{"ipam":[]}`, "ipam.type: "},
		"a plugin object that is null":     {`null`, "ipam.type is missing"},
		"a plugin object that is a list":   {`[]`, "plugin object"},
		"a plugin object that is no JSON":  {`{`, "plugin object"},
		"an ipam.type with a path":         {`{"ipam":{"type":"../scripted"}}`, "without a path"},
		"an ipam.type with an absolute":    {`{"ipam":{"type":"/bin/sh"}}`, "without a path"},
		"an ipam.type of dots":             {`{"ipam":{"type":".."}}`, "expected the file name of a plugin"},
		"an ipam.type that is not there":   {`{"ipam":{"type":"absent"}}`, "--cni-bin-dir"},
		"capabilities that are no object":  {`{"ipam":{"type":"scripted"},"capabilities":["ips"]}`, "capabilities: "},
		"args that are no object":          {`{"ipam":{"type":"scripted"},"args":7}`, "args: "},
		"args.cni that is no object":       {`{"ipam":{"type":"scripted"},"args":{"cni":7}}`, "args.cni: "},
		"an ipam.type with a control byte": {`{"ipam":{"type":"a\u0000b"}}`, "without a path"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.network.PluginConfig = json.RawMessage(c.config)
			_, err := b.runner.NewInvocation(t.Context(), b.network, "id", "owner")
			if err == nil || !strings.Contains(err.Error(), c.text) || !strings.Contains(err.Error(), `"net"`) {
				t.Errorf("got %v, want an error that names the network and says %q", err, c.text)
			}
		})
	}
	t.Run("a network without a name", func(t *testing.T) {
		b := newBench(t)
		b.network.Name = ""
		if _, err := b.runner.NewInvocation(t.Context(), b.network, "id", "owner"); err == nil || !strings.Contains(err.Error(), "name is empty") {
			t.Errorf("got %v, want an error that says that the name is empty", err)
		}
	})
}

func TestTheConfigurationIsCompleteAndKeepsWhatItDoesNotKnow(t *testing.T) {
	b := newBench(t)
	b.network.PluginConfig = json.RawMessage(`{
		"type":"cilium-cni", "name":"other", "cniVersion":"0.3.1", "big": 12345678901234567890,
		"capabilities":{"portMappings":true,"ips":true,"bandwidth":false},
		"prevResult":{"ips":[]}, "runtimeConfig":{"ips":["10.1.0.7"]},
		"args":{"cni":{"ips":["10.1.0.7"],"labels":[1]},"mine":{}},
		"ipam":{"type":"scripted","ranges":[[{"subnet":"10.1.0.0/24"}]],"unknown":[null]}}`)
	b.network.DisableCheck = true
	got := b.context("id")
	want := `{"args":{"cni":{"labels":[1]},"mine":{}},"big":12345678901234567890,` +
		`"capabilities":{"portMappings":true,"ips":true,"bandwidth":false},"cniVersion":"1.1.0",` +
		`"ipam":{"type":"scripted","ranges":[[{"subnet":"10.1.0.0/24"}]],"unknown":[null]},"name":"net","type":"cilium-cni"}`
	if string(got.Config) != want {
		t.Errorf("got configuration\n%s\nwant\n%s", got.Config, want)
	}
	if strings.Join(got.Capabilities, " ") != "ips portMappings" {
		t.Errorf("got capabilities %q, want those that are true, sorted", got.Capabilities)
	}
	if got.HasCheck() {
		t.Error("CHECK may be asked, want it forbidden by disableCheck")
	}
	if got.ContainerID != "id" || got.Network != "net" || got.Plugin != pluginType || got.Binary != filepath.Join(b.bin, pluginType) ||
		got.Path != b.bin || got.IfName != DefaultIfName || got.NetNS != DefaultNetNS || got.Args != "IgnoreUnknown=1" || got.Profile.Type != "scripted" {
		t.Errorf("got context %+v", got)
	}
	if _, err := b.runner.Add(t.Context(), call.Call{ContainerID: "id", Invocation: got}); err != nil {
		t.Fatal(err)
	}
	if stdin := string(b.calls(call.VerbAdd)[0].Stdin); stdin != want {
		t.Errorf("the plugin read\n%s\nwant the configuration as it is", stdin)
	}
}

func TestAPluginWithoutAProfileGetsTheUnknownOne(t *testing.T) {
	b := newBench(t)
	delete(b.profiles, pluginType)
	if got := b.context("id").Profile.Type; got != profile.Unknown {
		t.Errorf("got profile %q, want %q", got, profile.Unknown)
	}
}

func TestASyntheticPodIsUniqueToTheContainerID(t *testing.T) {
	b := newBench(t)
	b.with(func(p *profile.Profile) { p.PodIdentity = profile.PodIdentitySynthetic })
	if b.context("a").Args == b.context("b").Args {
		t.Error("two container IDs have the same pod")
	}
}
