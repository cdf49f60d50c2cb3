package call

import (
	"encoding/json"
	"net/netip"
	"slices"
	"testing"
)

func TestRequested(t *testing.T) {
	for name, tt := range map[string]struct {
		c    Container
		want []string
	}{
		"none":             {Container{Args: "IgnoreUnknown=1;K8S_POD_NAME=IP", CNIArgs: json.RawMessage(`{"cni":{"labels":{}}}`)}, nil},
		"CNI_ARGS":         {Container{Args: "IgnoreUnknown=1;IP=10.0.0.7"}, []string{"10.0.0.7"}},
		"several":          {Container{Args: "IP=10.0.0.7/24,fd00::7/64"}, []string{"10.0.0.7", "fd00::7"}},
		"args":             {Container{CNIArgs: json.RawMessage(`{"cni":{"ips":["10.0.0.7","fd00::7/64"]}}`)}, []string{"10.0.0.7", "fd00::7"}},
		"runtimeConfig":    {Container{RuntimeConfig: json.RawMessage(`{"ips":["::ffff:10.0.0.7/120"],"mac":"x"}`)}, []string{"10.0.0.7"}},
		"in several forms": {Container{Args: "IP=10.0.0.7", RuntimeConfig: json.RawMessage(`{"ips":["10.0.0.7/24"]}`)}, []string{"10.0.0.7"}},
		"no address":       {Container{Args: "IP=dhcp;IP=", RuntimeConfig: json.RawMessage(`{"ips":"10.0.0.7"}`)}, nil},
	} {
		var want []netip.Addr
		for _, text := range tt.want {
			want = append(want, netip.MustParseAddr(text))
		}
		if got := tt.c.Requested(); !slices.Equal(got, want) {
			t.Errorf("%s: got %v; want %v", name, got, want)
		}
	}
}

func TestOfSandbox(t *testing.T) {
	for args, want := range map[string]bool{
		"IgnoreUnknown=1;K8S_POD_NAME=p;K8S_POD_INFRA_CONTAINER_ID=0a1b":    true,
		"K8S_POD_INFRA_CONTAINER_ID=0a1b2":                                  false,
		"IgnoreUnknown=1;K8S_POD_NAME=p":                                    false,
		"X=K8S_POD_INFRA_CONTAINER_ID=0a1b;K8S_POD_INFRA_CONTAINER_ID=0a1c": false,
		"": false,
	} {
		if got := OfSandbox(args, "0a1b"); got != want {
			t.Errorf("%q: got %v", args, got)
		}
	}
}
