package plugin

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
)

func TestNewInvocation(t *testing.T) {
	f := newFake(t)
	f.network = networkOf("net", `{
		"type":"cilium-cni", "name":"other", "cniVersion":"0.3.1", "big": 12345678901234567890,
		"capabilities":{"portMappings":true,"ips":true,"bandwidth":false},
		"prevResult":{"ips":[]}, "runtimeConfig":{"ips":["10.1.0.7"]},
		"args":{"cni":{"ips":["10.1.0.7"],"labels":[1]},"mine":{}},
		"ipam":{"type":"scripted","ranges":[[{"subnet":"10.1.0.0/24"}]],"unknown":[null]}}`)
	f.network.DisableCheck = true
	got := f.invocation("id")
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
		t.Error("CHECK may be called, want it forbidden by disableCheck")
	}
	if got.ContainerID != "id" || got.Network != "net" || got.Plugin != fakeType || got.Binary != filepath.Join(f.bin, fakeType) ||
		got.Path != f.bin || got.IfName != "eth0" || got.NetNS != DefaultNetNS || got.Args != "IgnoreUnknown=1" || got.Profile.Type != "scripted" {
		t.Errorf("got %+v", got)
	}
	f.add(call.Call{Invocation: got})
	if stdin := string(f.calls(call.VerbAdd)[0].Stdin); stdin != want {
		t.Errorf("the plugin read\n%s\nwant the configuration as it is", stdin)
	}
}
